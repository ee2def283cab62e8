//! What is made, made again, waited for and removed.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// Longer than any maker here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Counts what is made under a name, so that tests do not count for each other.
static MADE: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn made(name: &str) -> usize {
    MADE.lock().unwrap().get(name).copied().unwrap_or(0)
}

fn recipe(name: &str, input: &str) -> Recipe {
    Recipe {
        name: name.into(),
        inputs: vec![input.into()],
        make: |recipe, folder| {
            *MADE.lock().unwrap().entry(recipe.name.clone()).or_default() += 1;
            if recipe.inputs[0] == b"bad" {
                return Err(Failure::failed("no compiler"));
            }
            fs::create_dir(folder.join("inner"))?;
            std::os::unix::fs::symlink("../table", folder.join("inner/link"))?;
            fs::write(folder.join("table"), &recipe.inputs[0]).map_err(Failure::from)
        },
    }
}

/// As another process would, which has checked nothing yet.
fn prepare_afresh(cache: &Path, recipe: &Recipe) -> Result<PathBuf, Failure> {
    CHECKED.lock().unwrap().retain(|place| !place.starts_with(cache));
    prepare_in(cache, recipe, PATIENCE)
}

/// Folders in a cache, sorted; locks aside.
fn folders(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut names: Vec<_> = folders.map(|one| one.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_artefact_is_made_once_for_its_inputs() {
    let cache = tempfile::tempdir().unwrap();
    let one = prepare_in(cache.path(), &recipe("once", "one"), PATIENCE).unwrap();
    let again = prepare_afresh(cache.path(), &recipe("once", "one")).unwrap();
    let two = prepare_in(cache.path(), &recipe("once", "two"), PATIENCE).unwrap();
    assert_eq!(one, again);
    assert_ne!(one, two);
    assert_eq!(fs::read(two.join("inner/link")).unwrap(), b"two");
    assert_eq!(made("once"), 2);
    assert!(prepare_in(cache.path(), &recipe("once", "bad"), PATIENCE).is_err());
    assert_eq!(folders(cache.path()).len(), 2, "nothing half-made stays");
}

#[test]
fn a_damaged_artefact_is_made_again() {
    let damage: [fn(&Path); 8] = [
        |folder| fs::write(folder.join("table"), "tabel").unwrap(),
        |folder| fs::write(folder.join("table"), "").unwrap(),
        |folder| fs::remove_file(folder.join("table")).unwrap(),
        |folder| fs::write(folder.join("extra"), "").unwrap(),
        |folder| {
            let open = fs::Permissions::from_mode(0o777);
            fs::set_permissions(folder.join("table"), open).unwrap();
        },
        |folder| {
            fs::remove_file(folder.join("inner/link")).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", folder.join("inner/link")).unwrap();
        },
        |folder| fs::remove_file(folder.join(".manifest.json")).unwrap(),
        |folder| {
            fs::remove_dir_all(folder).unwrap();
            fs::write(folder, "a file").unwrap();
        },
    ];
    let cache = tempfile::tempdir().unwrap();
    let recipe = recipe("damaged", "table");
    let place = prepare_in(cache.path(), &recipe, PATIENCE).unwrap();
    for (number, damage) in damage.iter().enumerate() {
        damage(&place);
        assert_eq!(prepare_afresh(cache.path(), &recipe).unwrap(), place);
        assert_eq!(made("damaged"), number + 2, "damage {number}");
        assert_eq!(fs::read(place.join("inner/link")).unwrap(), b"table", "damage {number}");
    }
}

#[test]
fn who_asks_for_what_another_makes_waits() {
    static MAKERS: AtomicUsize = AtomicUsize::new(0);
    let cache = tempfile::tempdir().unwrap();
    let slow = Recipe {
        make: |_, folder| {
            assert_eq!(MAKERS.fetch_add(1, Ordering::SeqCst), 0, "two make the same");
            std::thread::sleep(Duration::from_millis(100));
            fs::write(folder.join("table"), "").map_err(Failure::from)
        },
        ..recipe("slow", "table")
    };
    // As another process holds it.
    let name = format!("slow-{}", slow.hash());
    let lock = file::append(&lock_of(cache.path(), OsStr::new(&name))).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| prepare_afresh(cache.path(), &slow)));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(MAKERS.load(Ordering::SeqCst), 0, "nobody makes it without the lock");
        drop(lock);
        both.into_iter().for_each(|one| assert!(one.join().unwrap().is_ok()));
    });
    assert_eq!(MAKERS.load(Ordering::SeqCst), 1);
}

#[test]
fn what_the_dead_began_is_removed_and_what_the_living_make_stays() {
    let cache = tempfile::tempdir().unwrap();
    let at = |name: &str| cache.path().join(name);
    for name in [".making-dead-2", ".making-alive-3"] {
        fs::create_dir_all(at(name).join("tree")).unwrap();
    }
    file::append(&at("dead-2.lock")).unwrap();
    let alive = file::append(&at("alive-3.lock")).unwrap();
    alive.lock().unwrap();
    let place = prepare_in(cache.path(), &recipe("after", "table"), PATIENCE).unwrap();
    let place = place.file_name().unwrap().to_str().unwrap();
    assert_eq!(folders(cache.path()), [".making-alive-3", place]);
}

#[test]
fn a_lock_that_is_never_free_is_a_timeout_in_one_line() {
    let cache = tempfile::tempdir().unwrap();
    let recipe = recipe("locked", "table");
    let path = cache.path().join(format!("locked-{}.lock", recipe.hash()));
    let lock = file::append(&path).unwrap();
    lock.lock().unwrap();
    let failure = prepare_in(cache.path(), &recipe, Duration::from_millis(50)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
    let due = format!("another process holds {} for more than 50 ms; end it", path.display());
    assert!(failure.why.contains(&due) && !failure.why.contains('\n'), "{failure}");
    assert_eq!(made("locked"), 0);
    drop(lock);
    prepare_in(cache.path(), &recipe, PATIENCE).unwrap();
}
