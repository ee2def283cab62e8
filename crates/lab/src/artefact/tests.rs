//! Artefacts are made once, repaired, waited for and removed.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// Longer than any recipe here takes on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The number of times an artefact was made, by name, because tests share the process.
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

/// Prepares an artefact like a new process, which has checked no artefact.
fn prepare_in_new_process(cache: &Path, recipe: &Recipe) -> Result<PathBuf, Failure> {
    CHECKED.lock().unwrap().retain(|place| !place.starts_with(cache));
    prepare_in(cache, recipe, MAX_WAIT)
}

/// Returns the sorted names of the folders in a cache.
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
    let one = prepare_in(cache.path(), &recipe("once", "one"), MAX_WAIT).unwrap();
    let again = prepare_in_new_process(cache.path(), &recipe("once", "one")).unwrap();
    let two = prepare_in(cache.path(), &recipe("once", "two"), MAX_WAIT).unwrap();
    assert_eq!(one, again);
    assert_ne!(one, two);
    assert_eq!(fs::read(two.join("inner/link")).unwrap(), b"two");
    assert_eq!(made("once"), 2);
    assert!(prepare_in(cache.path(), &recipe("once", "bad"), MAX_WAIT).is_err());
    assert_eq!(folders(cache.path()).len(), 2, "nothing incomplete stays");
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
    let place = prepare_in(cache.path(), &recipe, MAX_WAIT).unwrap();
    for (number, damage) in damage.iter().enumerate() {
        damage(&place);
        assert_eq!(prepare_in_new_process(cache.path(), &recipe).unwrap(), place);
        assert_eq!(made("damaged"), number + 2, "damage {number}");
        assert_eq!(fs::read(place.join("inner/link")).unwrap(), b"table", "damage {number}");
    }
}

#[test]
fn a_process_waits_for_another_that_makes_the_same_artefact() {
    static MAKERS: AtomicUsize = AtomicUsize::new(0);
    let cache = tempfile::tempdir().unwrap();
    let slow = Recipe {
        make: |_, folder| {
            assert_eq!(MAKERS.fetch_add(1, Ordering::SeqCst), 0, "two processes make it");
            std::thread::sleep(Duration::from_millis(100));
            fs::write(folder.join("table"), "").map_err(Failure::from)
        },
        ..recipe("slow", "table")
    };
    // As if another process held it.
    let name = format!("slow-{}", slow.hash());
    let lock = file::append(&lock_of(cache.path(), OsStr::new(&name))).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| prepare_in_new_process(cache.path(), &slow)));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(MAKERS.load(Ordering::SeqCst), 0, "it is not made without the lock");
        drop(lock);
        both.into_iter().for_each(|one| assert!(one.join().unwrap().is_ok()));
    });
    assert_eq!(MAKERS.load(Ordering::SeqCst), 1);
}

#[test]
fn incomplete_artefacts_of_dead_processes_are_removed() {
    let cache = tempfile::tempdir().unwrap();
    let at = |name: &str| cache.path().join(name);
    for name in [".making-dead-2", ".making-alive-3"] {
        fs::create_dir_all(at(name).join("tree")).unwrap();
    }
    file::append(&at("dead-2.lock")).unwrap();
    let alive = file::append(&at("alive-3.lock")).unwrap();
    alive.lock().unwrap();
    let place = prepare_in(cache.path(), &recipe("after", "table"), MAX_WAIT).unwrap();
    let place = place.file_name().unwrap().to_str().unwrap();
    assert_eq!(folders(cache.path()), [".making-alive-3", place]);
}

#[test]
fn a_lock_that_is_never_free_is_a_timeout() {
    let cache = tempfile::tempdir().unwrap();
    let recipe = recipe("locked", "table");
    let path = cache.path().join(format!("locked-{}.lock", recipe.hash()));
    let lock = file::append(&path).unwrap();
    lock.lock().unwrap();
    let failure = prepare_in(cache.path(), &recipe, Duration::from_millis(50)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
    let expected = format!("another process holds {} for more than 50 ms; end it", path.display());
    assert!(failure.why.contains(&expected) && !failure.why.contains('\n'), "{failure}");
    assert_eq!(made("locked"), 0);
    drop(lock);
    prepare_in(cache.path(), &recipe, MAX_WAIT).unwrap();
}

#[test]
fn a_guest_leaves_what_its_host_is_making() {
    if std::env::var_os(IN_GUEST).is_none() {
        let name = "artefact::tests::a_guest_leaves_what_its_host_is_making";
        let mut inside = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(inside.args([name, "--exact"]).env(IN_GUEST, "yes").status().unwrap().success());
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let making = cache.path().join(".making-other-0123");
    fs::create_dir(&making).unwrap();
    fs::write(cache.path().join("other-0123.lock"), "").unwrap();
    prepare_in(cache.path(), &recipe("inside", "one"), MAX_WAIT).unwrap();
    assert!(making.exists());
}
