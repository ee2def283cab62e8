//! The folder of artefacts: the user's own, since programs in it are executed.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use machine::user;

use crate::sample::Failure;

const REMEDY: &str = "name a folder of your own with XDG_CACHE_HOME";

/// `tollgate` in the user's cache folder, ready for use.
///
/// # Errors
/// When there is no home, or another user could change what is in the folder.
pub(super) fn folder() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let folder =
        place(variable("XDG_CACHE_HOME"), variable("HOME"), user::home()).ok_or_else(|| {
            Failure::unavailable("no folder for artefacts: this user has no home", REMEDY)
        })?;
    secure(&folder)?;
    Ok(folder)
}

/// Where the cache is. Never a temporary folder that users share; empty and relative values are ignored,
/// as the XDG specification demands.
fn place(
    cache: Option<PathBuf>,
    home: Option<PathBuf>,
    listed: Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let in_home = || home.filter(absolute).or(listed).map(|home| home.join(".cache"));
    Some(cache.filter(absolute).or_else(in_home)?.join("tollgate"))
}

/// Makes the folder, or checks that it is this user's and closed to others.
pub(super) fn secure(folder: &Path) -> Result<(), Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::unavailable(format!("artefacts in {}: {why}", folder.display()), REMEDY)
    };
    let parent = folder.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(|why| refused(&why))?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => return Err(refused(&why)),
        Ok(()) | Err(_) => {}
    }
    let found = fs::metadata(parent).map_err(|why| refused(&why))?;
    let open_to_all = found.mode() & 0o1002 == 0o002;
    if open_to_all || ![0, user::id()].contains(&found.uid()) {
        return Err(refused(&"another user may replace the folder that it is in"));
    }
    let found = fs::metadata(folder).map_err(|why| refused(&why))?;
    if !found.is_dir() {
        return Err(refused(&"it is not a folder"));
    }
    if found.uid() != user::id() {
        return Err(refused(&format!("it belongs to the user {}, not to you", found.uid())));
    }
    if found.mode() & 0o022 != 0 {
        return Err(refused(&"other users may write in it, so what it holds is not trusted"));
    }
    if found.mode() & 0o777 != 0o700 {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(|why| refused(&why))?;
    }
    Ok(())
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
        let own = tempfile::tempdir().unwrap();
        let cache = own.path().join("a/b/tollgate");
        let mode = || fs::metadata(&cache).unwrap().mode() & 0o7777;
        let set =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        secure(&cache).unwrap();
        assert_eq!(mode(), 0o700);
        set(&cache, 0o755);
        secure(&cache).unwrap();
        assert_eq!(mode(), 0o700, "readable to others before");
        for open in [0o770, 0o702, 0o1777] {
            set(&cache, open);
            let line = secure(&cache).unwrap_err().to_string();
            assert!(line.contains("other users may write in it") && !line.contains('\n'), "{line}");
        }
        set(&cache, 0o700);
        set(cache.parent().unwrap(), 0o777);
        assert!(secure(&cache).unwrap_err().to_string().contains("another user may replace"));
        set(cache.parent().unwrap(), 0o1777);
        secure(&cache).unwrap();
        let file = own.path().join("tollgate");
        fs::write(&file, "").unwrap();
        assert!(secure(&file).unwrap_err().to_string().contains("not a folder"));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let own = tempfile::tempdir().unwrap();
        let cache = own.path().join("tollgate");
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
}
