//! The folder of artefacts. Programs in it are executed, so no other user may be able to change it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use machine::user;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::guest::{HOST_USER, IN_GUEST};
use crate::sample::Failure;

const REMEDY: &str = "set XDG_CACHE_HOME to a folder that only you can write";

/// Returns the folder `tollgate` in the user's cache folder; creates it if necessary.
///
/// # Errors
/// Returns `unavailable` if the user has no home folder, or another user could change the folder.
pub(super) fn folder() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let folder =
        place(variable("XDG_CACHE_HOME"), variable("HOME"), user::home()).ok_or_else(|| {
            Failure::unavailable("no folder for artefacts: this user has no home folder", REMEDY)
        })?;
    secure(&folder)?;
    Ok(folder)
}

/// Returns the path of the cache, never in a shared temporary folder. Empty and relative values are ignored, as the XDG
/// specification requires.
// `etcetera` is not used: a relative HOME must fall back to the user database.
fn place(
    cache: Option<PathBuf>,
    home: Option<PathBuf>,
    listed: Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let in_home = || home.filter(absolute).or(listed).map(|home| home.join(".cache"));
    Some(cache.filter(absolute).or_else(in_home)?.join("tollgate"))
}

/// Creates the folder, or checks that it belongs to this user and that no other user can change it. No other user may
/// be able to replace it or a parent folder.
pub(super) fn secure(folder: &Path) -> Result<(), Failure> {
    check(folder).map_err(|why| {
        Failure::unavailable(format!("artefacts in {}: {why}", folder.display()), REMEDY)
    })
}

fn check(folder: &Path) -> Result<(), String> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err("it has no parent folder".into());
    };
    let parent = descend(parent)?;
    let cache = open_or_make(&parent, name).map_err(|why| why.to_string())?;
    let found = cache.metadata().map_err(|why| why.to_string())?;
    if found.is_symlink() {
        return Err("it is a symbolic link, not a folder".into());
    }
    if !found.is_dir() {
        return Err("it is not a folder".into());
    }
    if !is_own(found.uid()) {
        return Err(format!("it belongs to the user {}, not to you", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return Err("other users may write in it, so its content is not trusted".into());
    }
    if found.mode() & 0o777 != 0o700 {
        // By its descriptor, so that it is the folder that was checked.
        let opened = format!("/proc/self/fd/{}", cache.as_raw_fd());
        fs::set_permissions(opened, Permissions::from_mode(0o700))
            .map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// Opens a folder, one path component at a time from the root, and creates missing folders. Fails if another user could
/// replace a component: below a folder or symbolic link of another user, and below a folder that other users may write
/// in, unless it is sticky.
fn descend(folder: &Path) -> Result<File, String> {
    /// The limit of Linux.
    const MAX_LINKS: usize = 40;
    let mut at = PathBuf::from("/");
    let mut opened = open_root()?;
    let mut names: VecDeque<OsString> = names_of(folder).collect();
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        let at_name = |why: &dyn std::fmt::Display| format!("{}: {why}", at.join(&name).display());
        let next = open_or_make(&opened, &name).map_err(|why| at_name(&why))?;
        let found = next.metadata().map_err(|why| at_name(&why))?;
        if let Some(why) = replaceable(&found) {
            return Err(format!("another user may replace what is in {}", at_name(&why)));
        }
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(at_name(&Errno::LOOP));
            }
            let target = readlinkat(&next, "", Vec::new()).map_err(|why| at_name(&why))?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                (at, opened) = (PathBuf::from("/"), open_root()?);
            }
            names_of(&target).rev().for_each(|name| names.push_front(name));
        } else if found.is_dir() {
            (at, opened) = (at.join(&name), next);
        } else {
            return Err(at_name(&"is not a folder"));
        }
    }
    Ok(opened)
}

fn open_root() -> Result<File, String> {
    let root = open_or_make(CWD, OsStr::new("/")).map_err(|why| why.to_string())?;
    let found = root.metadata().map_err(|why| why.to_string())?;
    match replaceable(&found) {
        Some(why) => Err(format!("another user may replace what is in /: {why}")),
        None => Ok(root),
    }
}

/// Returns the components of a path, without the root, with `..` for parent folders.
fn names_of(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    use std::path::Component::{Normal, ParentDir};
    path.components()
        .filter(|one| matches!(one, Normal(_) | ParentDir))
        .map(|one| one.as_os_str().into())
}

/// Opens a path component with `O_PATH`, without following a symbolic link; creates a folder if it does not exist.
fn open_or_make(parent: impl std::os::fd::AsFd, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(&parent, name, flags, Mode::empty()).map(File::from);
    match open() {
        Err(Errno::NOENT) => {
            match mkdirat(&parent, name, Mode::RWXU) {
                // Another process may have created it just now; the caller checks it.
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(why) => Err(why),
            }
        }
        other => other,
    }
}

/// Returns whether a user ID is that of this process or, in a guest, that of the user who started it: this process is
/// root there, and the host's files keep their owners.
fn is_own(id: u32) -> bool {
    let in_guest = std::env::var_os(IN_GUEST).and_then(|_| std::env::var(HOST_USER).ok());
    id == user::id() || in_guest.and_then(|user| user.parse().ok()) == Some(id)
}

/// Returns why another user could change the content of a folder or the target of a symbolic link; `None` if not.
fn replaceable(found: &Metadata) -> Option<String> {
    if found.uid() != 0 && !is_own(found.uid()) {
        return Some(format!("it belongs to the user {}", found.uid()));
    }
    // In a sticky folder only the owner of an entry can replace it, and owners are checked.
    let is_open = found.is_dir() && found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
    is_open.then(|| format!("its mode is {:o}", found.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_never_in_a_shared_folder() {
        let path = |text: &str| Some(PathBuf::from(text));
        let cases = [
            (path("/cache"), path("/home/a"), "/cache/tollgate"),
            (path(""), path("/home/a"), "/home/a/.cache/tollgate"),
            (path("cache"), path("/home/a"), "/home/a/.cache/tollgate"),
            (None, path(""), "/listed/.cache/tollgate"),
            (None, path("home"), "/listed/.cache/tollgate"),
            (None, None, "/listed/.cache/tollgate"),
        ];
        for (cache, home, expected) in cases {
            assert_eq!(place(cache, home, path("/listed")), path(expected));
        }
        assert_eq!(place(None, None, None), None);
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let cache = temporary.path().join("a/b/tollgate");
        let mode = || fs::metadata(&cache).unwrap().mode() & 0o7777;
        let set =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        secure(&cache).unwrap();
        assert_eq!(mode(), 0o700);
        set(&cache, 0o755);
        secure(&cache).unwrap();
        assert_eq!(mode(), 0o700, "it was readable by others");
        for open in [0o770, 0o702, 0o1777] {
            set(&cache, open);
            let line = secure(&cache).unwrap_err().to_string();
            assert!(line.contains("other users may write in it") && !line.contains('\n'), "{line}");
        }
        set(&cache, 0o700);
        for above in cache.ancestors().skip(1).take(2) {
            for open in [0o777, 0o770, 0o720] {
                set(above, open);
                let line = secure(&cache).unwrap_err().to_string();
                let expected =
                    format!("replace what is in {}: its mode is {open:o}", above.display());
                assert!(line.contains(&expected) && !line.contains('\n'), "{line}");
            }
            set(above, 0o1777);
            secure(&cache).unwrap();
            set(above, 0o755);
        }
        let file = temporary.path().join("tollgate");
        fs::write(&file, "").unwrap();
        assert!(secure(&file).unwrap_err().to_string().contains("not a folder"));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let cache = temporary.path().join("tollgate");
        fs::create_dir(&cache).unwrap();
        if std::os::unix::fs::chown(&cache, Some(65534), None).is_err() {
            return machine::untested::note(
                "a cache of another user",
                &"giving files away needs root",
            );
        }
        let line = secure(&cache).unwrap_err().to_string();
        assert!(line.contains("belongs to the user 65534"), "{line}");
    }

    #[test]
    fn a_symbolic_link_to_the_folder_is_refused_and_its_target_unchanged() {
        let temporary = tempfile::tempdir().unwrap();
        let victim = temporary.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o755)).unwrap();
        let cache = temporary.path().join("tollgate");
        for target in [victim.as_path(), Path::new("victim"), Path::new("absent")] {
            std::os::unix::fs::symlink(target, &cache).unwrap();
            let line = secure(&cache).unwrap_err().to_string();
            assert!(line.contains("it is a symbolic link") && !line.contains('\n'), "{line}");
            assert!(cache.is_symlink());
            fs::remove_file(&cache).unwrap();
        }
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o7777, 0o755);
        assert!(!temporary.path().join("absent").exists());
    }

    #[test]
    fn symbolic_links_of_the_user_are_followed_and_their_targets_checked() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("shared/disk")).unwrap();
        for (name, target) in
            [("relative", PathBuf::from("shared/../shared/disk")), ("absolute", at("shared/disk"))]
        {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
            secure(&at(name).join("tollgate")).unwrap();
            assert_eq!(fs::metadata(at("shared/disk/tollgate")).unwrap().mode() & 0o7777, 0o700);
            fs::set_permissions(at("shared"), Permissions::from_mode(0o775)).unwrap();
            let line = secure(&at(name).join("tollgate")).unwrap_err().to_string();
            assert!(line.contains("its mode is 775"), "{line}");
            fs::set_permissions(at("shared"), Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        assert!(secure(&at("loop/tollgate")).unwrap_err().to_string().contains("symbolic link"));
    }

    #[test]
    fn a_parent_folder_or_link_of_another_user_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir_all(at("theirs/mine")).unwrap();
        std::os::unix::fs::symlink("theirs", at("link")).unwrap();
        for (planted, cache) in [("link", "link/tollgate"), ("theirs", "theirs/mine/tollgate")] {
            if std::os::unix::fs::lchown(at(planted), Some(65534), None).is_err() {
                return machine::untested::note(
                    "a cache in a folder of another user",
                    &"giving files away needs root",
                );
            }
            let line = secure(&at(cache)).unwrap_err().to_string();
            let expected = format!("replace what is in {}: it belongs to", at(planted).display());
            assert!(line.contains(&expected), "{line}");
            assert!(!at(cache).exists());
        }
    }
}
