//! Tests of replaced, special and refused files.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, thread};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tempfile::{TempDir, tempdir};

use super::*;

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn fifo(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    path
}

/// Makes a node that behaves like `/dev/null` or `/dev/full`; `None` if this process may not.
fn device(folder: &TempDir, minor: u32) -> Option<PathBuf> {
    let path = folder.path().join(format!("device-{minor}"));
    let made = mknodat(CWD, &path, FileType::CharacterDevice, Mode::from(0o600), makedev(1, minor));
    // A container may allow making a node but not opening it.
    let usable = made.is_ok() && fs::File::options().write(true).open(&path).is_ok();
    if !usable {
        crate::untested::note("output to a device node", &"mknod is refused; run as root");
    }
    usable.then_some(path)
}

#[test]
fn a_regular_file_is_replaced_as_a_whole_and_keeps_its_permissions() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out.csv");
    write(&path, b"first").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut output = Output::create(&path).unwrap();
    output.write_all(b"second").unwrap();
    output.flush().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first", "nothing is replaced before the end");
    output.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert_eq!(names(folder.path()), ["out.csv"]);
}

/// A program that is killed while it writes leaves no file behind.
#[test]
fn an_output_has_no_name_before_the_end() {
    let folder = tempdir().unwrap();
    if unnamed(folder.path(), 0o600).is_none() {
        let why = format!("{} does not support O_TMPFILE", folder.path().display());
        return crate::untested::note("output without a name", &why);
    }
    let path = folder.path().join("out.csv");
    for before in [&[][..], &["out.csv"]] {
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"bytes").unwrap();
        output.flush().unwrap();
        assert_eq!(names(folder.path()), before);
        output.finish().unwrap();
        assert_eq!(names(folder.path()), ["out.csv"]);
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
    }
}

/// If a file without a name cannot be made, one with a temporary name is.
#[test]
fn a_temporary_name_is_removed_or_becomes_the_final_one() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out.csv");
    for finished in [false, true] {
        let (file, temporary) = named(folder.path(), 0o666).unwrap();
        let replaces = Replacement { temporary: Some(temporary), target: path.clone() };
        let mut output = Output { file: BufWriter::new(file), replaces: Some(replaces) };
        output.write_all(b"bytes").unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        if finished {
            output.finish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"bytes");
        } else {
            drop(output);
            assert!(names(folder.path()).is_empty());
        }
    }
}

#[test]
fn a_replaced_file_is_no_longer_setuid_or_setgid() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out.csv");
    write(&path, b"first").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o7755)).unwrap();
    write(&path, b"second").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_replaced_file_keeps_its_owner_and_group() {
    if crate::user::id() != 0 {
        return crate::untested::note("owners of replaced files", &"only root can give files away");
    }
    let folder = tempdir().unwrap();
    let path = folder.path().join("out.csv");
    write(&path, b"first").unwrap();
    if let Err(why) = std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)) {
        return crate::untested::note("owners of replaced files", &why);
    }
    write(&path, b"second").unwrap();
    let kept = fs::metadata(&path).unwrap();
    assert_eq!((kept.uid(), kept.gid()), (NOBODY, NOBODY));
    assert_eq!(fs::read(&path).unwrap(), b"second");
}

/// User and group ID of `nobody`.
const NOBODY: u32 = 65534;

/// Runs a body as an unprivileged user; if this is root, in a thread of the user `nobody`. Returns whether it
/// ran: root of a user namespace may not become `nobody`, and `nobody` may have no access to the folder of
/// temporary files.
fn as_plain_user(folder: &TempDir, body: impl FnOnce() + Send) -> bool {
    if crate::user::id() != 0 {
        body();
        return true;
    }
    let as_nobody = || {
        become_nobody()?;
        rustix::fs::access(folder.path(), Access::EXEC_OK)?;
        body();
        Ok(())
    };
    let ran: io::Result<()> = thread::scope(|scope| scope.spawn(as_nobody).join().unwrap());
    // Not as `nobody`, who may be unable to write the note.
    ran.inspect_err(|why| crate::untested::note("output as a plain user", why)).is_ok()
}

/// Makes `nobody` the user of this thread.
fn become_nobody() -> io::Result<()> {
    let nobody = libc::c_long::from(NOBODY);
    // SAFETY: system calls on numbers. The kernel changes the user and groups of this thread only.
    let changed = unsafe {
        libc::syscall(libc::SYS_setgroups, 0_usize, 0_usize) == 0
            && libc::syscall(libc::SYS_setresgid, nobody, nobody, nobody) == 0
            && libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) == 0
    };
    if changed { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn a_file_that_this_user_cannot_write_is_kept() {
    let folder = tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("out.csv");
    let ran = as_plain_user(&folder, || {
        fs::write(&path, b"first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        let why = write(&path, b"second").unwrap_err();
        assert_eq!(
            (why.raw_os_error(), remedy(&why)),
            (Some(libc::EACCES), "choose a file that you can write")
        );
    });
    if ran {
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["out.csv"]);
    }
}

#[test]
fn a_file_of_another_user_is_not_taken_over() {
    if crate::user::id() != 0 {
        return crate::untested::note(
            "output over files of other users",
            &"only root can create one",
        );
    }
    let folder = tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("out.csv");
    fs::write(&path, b"first").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    as_plain_user(&folder, || {
        let why = write(&path, b"second").unwrap_err().to_string();
        assert!(why.contains("owner 0 and group 0 cannot be kept"), "{why}");
    });
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(names(folder.path()), ["out.csv"]);
}

#[test]
fn a_folder_that_refuses_a_file_is_named() {
    let folder = tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    as_plain_user(&folder, || {
        let why = write(&folder.path().join("out.csv"), b"bytes").unwrap_err();
        assert_eq!(why.kind(), ErrorKind::PermissionDenied);
        assert!(why.to_string().contains(folder.path().to_str().unwrap()), "{why}");
    });
}

#[test]
fn an_abandoned_output_leaves_the_old_file_and_no_temporary_one() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out.csv");
    write(&path, b"first").unwrap();
    let mut output = Output::create(&path).unwrap();
    output.write_all(b"half").unwrap();
    drop(output);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(names(folder.path()), ["out.csv"]);
}

#[test]
fn a_link_stays_and_its_target_is_replaced() {
    let folder = tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    write(&inner.join("target"), b"old").unwrap();
    let link = folder.path().join("link");
    symlink("inner/target", &link).unwrap();
    write(&link, b"new").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(inner.join("target")).unwrap(), b"new");

    let nowhere = folder.path().join("nowhere");
    symlink("missing", &nowhere).unwrap();
    assert!(write(&nowhere, b"new").unwrap_err().to_string().contains("dangling link"));
    assert_eq!(names(folder.path()), ["inner", "link", "nowhere"]);
}

#[test]
fn an_unwritable_path_is_refused_unopened() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let why = Output::check_over(&socket, b"").unwrap_err().to_string();
    assert!(why.contains("is a socket"), "{why}");
    // Opening a FIFO without a reader would block.
    let path = fifo(&folder);
    Output::check_over(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let checked = Output::check_over(&path, b"");
    match rustix::process::geteuid().is_root() {
        true => crate::untested::note("a FIFO that may not be written", &"root may write it"),
        false => assert_eq!(checked.unwrap_err().kind(), ErrorKind::PermissionDenied),
    }
}

#[test]
fn a_fifo_is_written_through() {
    let folder = tempdir().unwrap();
    let path = fifo(&folder);
    let reader = thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    write(&path, b"through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert_eq!(names(folder.path()), ["fifo"]);
}

#[test]
fn a_device_is_written_through_and_a_full_one_is_an_error() {
    let folder = tempdir().unwrap();
    for (minor, fits) in [(3, true), (7, false)] {
        let Some(path) = device(&folder, minor) else { return };
        let link = folder.path().join(format!("link-{minor}"));
        symlink(&path, &link).unwrap();
        for named in [&path, &link] {
            let written = write(named, b"bytes");
            assert_eq!(written.is_ok(), fits, "{named:?}: {written:?}");
        }
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_char_device());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
    assert!(names(folder.path()).iter().all(|name| !name.starts_with('.')));
}

#[test]
fn a_full_disk_is_an_error() {
    // A defect would delete the node if this is root.
    if crate::user::id() == 0 {
        return crate::untested::note(
            "output to the system's own /dev/full",
            &"this is root; a look-alike is tested if one can be made",
        );
    }
    if !Path::new("/dev/full").exists() {
        return crate::untested::note("output to a full disk", &"/dev/full does not exist");
    }
    let why = write(Path::new("/dev/full"), b"bytes").unwrap_err();
    assert_eq!(why.kind(), ErrorKind::StorageFull);
}

#[test]
fn an_error_names_no_temporary_file_and_its_remedy_fits() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "").unwrap();
    symlink("missing", at("nowhere")).unwrap();
    let cases = [
        (at("none/out.csv"), Some(libc::ENOENT), "create its folder first"),
        (at("file/out.csv"), Some(libc::ENOTDIR), "create its folder first"),
        (at("."), None, "choose another file"),
        (at("nowhere"), None, "choose another file"),
    ];
    for (path, code, fix) in cases {
        let why = write(&path, b"bytes").unwrap_err();
        assert!(!why.to_string().contains(".tollgate-"), "{path:?}: {why}");
        assert_eq!(why.raw_os_error(), code, "{path:?}: {why}");
        assert!(remedy(&why).starts_with(fix), "{path:?}: {why}; {}", remedy(&why));
    }
    let full = io::Error::from_raw_os_error(libc::ENOSPC);
    assert!(remedy(&full).starts_with("free space"));
    let over = io::Error::from_raw_os_error(libc::EFBIG);
    assert!(remedy(&over).starts_with("raise the limit of file sizes"));
}

#[test]
fn a_descriptor_of_this_process_is_written_at_its_position() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("out");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"before,").unwrap();
    let number = file.as_raw_fd();
    for name in [format!("/proc/self/fd/{number}"), format!("/dev/fd/{number}")] {
        let mut output = Output::create(Path::new(&name)).unwrap();
        output.write_all(b"through,").unwrap();
        output.finish().unwrap();
    }
    file.write_all(b"after").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"before,through,through,after");
    assert!(Output::create(Path::new("/proc/self/fd/987654")).is_err());

    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let name = format!("/proc/self/fd/{}", ours.as_raw_fd());
    write(Path::new(&name), b"to a socket").unwrap();
    drop(ours);
    let mut read = Vec::new();
    theirs.read_to_end(&mut read).unwrap();
    assert_eq!(read, b"to a socket");
}

#[test]
fn an_unrelated_file_is_kept_if_a_header_is_expected() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("results.csv");
    let over = |path: &Path| Output::create_over(path, b"length,rate\n");
    for held in [&b""[..], b"length,rate\n1,2\n"] {
        fs::write(&path, held).unwrap();
        let mut output = over(&path).unwrap();
        output.write_all(b"length,rate\n3,4\n").unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"length,rate\n3,4\n");
    }
    for held in [&b"length,"[..], b"a thesis"] {
        fs::write(&path, held).unwrap();
        assert_eq!(over(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), held);
    }
    over(&folder.path().join("new.csv")).unwrap().finish().unwrap();
    assert_eq!(names(folder.path()), ["new.csv", "results.csv"]);
}

#[test]
fn only_regular_files_are_opened_and_nothing_blocks() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), b"bytes").unwrap();
    assert_eq!(read(&at("file"), 5).unwrap(), b"bytes");
    assert_eq!(read(&at("file"), 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
    symlink("file", at("link")).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    fifo(&folder);
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for name in ["link", "zero", "fifo", "socket", "."] {
        for opened in [open(&at(name)), append(&at(name))] {
            let why = opened.unwrap_err();
            let refused = matches!(why.kind(), ErrorKind::InvalidInput | ErrorKind::IsADirectory);
            assert!(refused, "{name}: {why}");
        }
    }
    assert!(create_new(&at("link")).is_err());
    assert!(create_new(&at("new")).is_ok());
    let endless = read_input(Path::new("/dev/zero"), 1000).unwrap_err();
    assert_eq!(endless.kind(), ErrorKind::FileTooLarge);
}

#[test]
fn a_planted_file_in_a_results_folder_is_replaced() {
    let folder = tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    let link = folder.path().join("link");
    symlink(&victim, &link).unwrap();
    for path in [link, fifo(&folder), folder.path().join("absent")] {
        replace(&path, b"ours").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{}", path.display());
        assert_eq!(fs::read(&path).unwrap(), b"ours");
    }
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
}

#[test]
fn a_folder_is_created_once_and_never_through_a_link() {
    let folder = tempdir().unwrap();
    let [made, link, file] = ["made", "link", "file"].map(|name| folder.path().join(name));
    create_folder(&made).unwrap();
    create_folder(&made).unwrap();
    symlink(&made, &link).unwrap();
    fs::write(&file, "").unwrap();
    for planted in [link, file] {
        assert_eq!(create_folder(&planted).unwrap_err().kind(), ErrorKind::NotADirectory);
    }
}
