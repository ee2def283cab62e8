//! Checks of a declaration.

use std::collections::BTreeSet;

use lab::data::is_plain_name;
use lab::quantity;

use super::Declaration;
use crate::backing_file::SIZE_SUFFIX;
use crate::pool;
use crate::rules::HOSTS;

/// Maximum length of the kernel's parameters in bytes.
const MAX_PARAMETERS: usize = 1500;

/// Checks all parts of a declaration.
///
/// # Errors
/// Returns what is wrong and the fix, without the file.
pub(super) fn all(declaration: &Declaration) -> Result<(), String> {
    if !(1..=64).contains(&declaration.cpus) {
        return Err(format!("cpus: {} is not from 1 to 64", declaration.cpus));
    }
    let (cpus, threads) = (declaration.cpus, declaration.threads);
    if !(1..=2).contains(&threads) || !cpus.is_multiple_of(threads) {
        let what = "cores have 1 or 2 threads, and all cores as many";
        return Err(format!("threads: {threads} with {cpus} CPUs: {what}"));
    }
    check_executor(declaration)?;
    check_parameters(&declaration.parameters)?;
    for (name, size) in &declaration.files {
        check_file(name, size)?;
    }
    if declaration.pool.is_some() && declaration.host.len() != HOSTS {
        return Err(format!("pool: its rules are for {HOSTS} hosts; declare as many [[host]]"));
    }
    if let Some(pool) = &declaration.pool {
        pool.base_address()?;
    }
    check_names(declaration)?;
    check_kernel(declaration)?;
    for host in &declaration.host {
        if !is_plain_name(&host.name) || host.name.len() > 20 {
            return Err(format!(
                "host: '{}': use at most 20 letters, digits, '-', '_' and '.'",
                host.name
            ));
        }
    }
    Ok(())
}

/// Checks the name and the size of a backing file.
fn check_file(name: &str, size: &str) -> Result<(), String> {
    if !is_plain_name(name) {
        return Err(format!("files: '{name}': use letters, digits, '-', '_' and '.'"));
    }
    if name.ends_with(SIZE_SUFFIX) {
        let why = "the placeholder of a file's length ends so";
        return Err(format!("files: '{name}' ends in '{SIZE_SUFFIX}': {why}; rename the file"));
    }
    let bytes = quantity::bytes(size).map_err(|why| format!("files: {name}: {why}"))?;
    if !(1..1 << 48).contains(&bytes) {
        return Err(format!("files: {name}: '{size}' is not from 1 B to 256 TiB; e.g. '64 MiB'"));
    }
    Ok(())
}

/// Checks that no option of QEMU changes what executes the guest or its CPU: the journal records them by `--accelerator` and
/// `cpu`.
fn check_executor(declaration: &Declaration) -> Result<(), String> {
    let sets_accelerator = |machine: &str| machine.split(',').any(|it| it.starts_with("accel="));
    let fix = "remove it and use --accelerator";
    if sets_accelerator(&declaration.machine) {
        return Err(format!("machine: 'accel=' would change what executes the guest; {fix}"));
    }
    let of_hosts = declaration.host.iter().map(|host| &host.arguments);
    for arguments in [&declaration.arguments].into_iter().chain(of_hosts) {
        for (at, argument) in arguments.iter().enumerate() {
            // QEMU takes one dash or two.
            let Some(option) = argument.strip_prefix('-') else { continue };
            let fix = match option.strip_prefix('-').unwrap_or(option) {
                "accel" | "enable-kvm" => fix,
                "machine" | "M" if arguments.get(at + 1).is_some_and(|it| sets_accelerator(it)) => {
                    fix
                }
                "cpu" => "remove it and set 'cpu'",
                "readconfig" => "write its options as arguments",
                _ => continue,
            };
            return Err(format!(
                "arguments: '{argument}' would change what executes the guest; {fix}"
            ));
        }
    }
    Ok(())
}

/// Checks the names that one part of a declaration gives and another uses.
fn check_names(declaration: &Declaration) -> Result<(), String> {
    let mut hosts = BTreeSet::new();
    if let Some(host) = declaration.host.iter().find(|host| !hosts.insert(&host.name)) {
        return Err(format!("host: two hosts are named '{}'; rename one", host.name));
    }
    let of_pool = declaration.files.keys().find(|name| pool::has_file(name));
    if let Some(name) = of_pool.filter(|_| declaration.pool.is_some()) {
        return Err(format!("files: '{name}' is a file of the pool; rename it"));
    }
    let of_hosts = declaration.host.iter().flat_map(|host| &host.arguments);
    for argument in declaration.arguments.iter().chain(of_hosts) {
        let is_unknown = |name: &&str| {
            !declaration.files.contains_key(name.strip_suffix(SIZE_SUFFIX).unwrap_or(name))
        };
        if let Some(name) = placeholders(argument).find(is_unknown) {
            return Err(format!(
                "arguments: '{argument}' contains the unknown file '{name}'; declare it in 'files'"
            ));
        }
    }
    Ok(())
}

/// Checks the options of a kernel to build, and that no modules are requested of it.
fn check_kernel(declaration: &Declaration) -> Result<(), String> {
    let Some(kernel) = &declaration.kernel else { return Ok(()) };
    if !declaration.modules.is_empty() {
        return Err("modules: a built kernel has none; set options of the kernel".into());
    }
    let is_option = |line: &String| {
        let named = line.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('='));
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        named.is_some_and(|(name, value)| {
            !name.is_empty() && name.chars().all(is_name) && !value.contains(char::is_control)
        })
    };
    match kernel.options.iter().find(|line| !is_option(line)) {
        Some(line) => Err(format!("kernel: options: '{line}' is not of the form CONFIG_NAME=y")),
        None => Ok(()),
    }
}

/// Checks that Linux takes the parameters of its kernel as such.
fn check_parameters(parameters: &str) -> Result<(), String> {
    if parameters.contains(char::is_control) {
        return Err("parameters: a control character; write one line".into());
    }
    if parameters.split_whitespace().any(|word| word == "--") {
        return Err("parameters: '--' would start the arguments of init; remove it".into());
    }
    // Linux cuts a longer line, whose end names init. Some of its 2048 bytes are those of the console.
    if parameters.len() > MAX_PARAMETERS {
        return Err(format!("parameters: over {MAX_PARAMETERS} B; shorten them"));
    }
    Ok(())
}

/// Returns the names in braces that an argument contains. Other text in braces, e.g. JSON, is no placeholder.
fn placeholders(argument: &str) -> impl Iterator<Item = &str> {
    let parts = argument.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0));
    parts.filter(|name| is_plain_name(name))
}

#[cfg(test)]
mod tests {
    use super::super::find;

    #[test]
    fn a_wrong_declaration_is_refused_with_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        for (text, cause) in [
            ("about = 'one'\ncpus = 0", "cpus: 0"),
            ("about = 'one'\nthreads = 4", "threads: 4 with 2 CPUs: cores have 1 or 2 threads"),
            ("about = 'one'\nthreads = 0", "threads: 0 with 2 CPUs"),
            ("about = 'one'\ncpus = 3\nthreads = 2", "threads: 2 with 3 CPUs"),
            ("about = 'one'\nmodule = []", "unknown field `module`"),
            ("about = 'one'\nfiles = { a = 'much' }", "files: a: "),
            ("about = 'one'\nfiles = { a = '0 B' }", "files: a: '0 B' is not from 1 B"),
            ("about = 'one'\nfiles = { 'a/b' = '1 MiB' }", "files: 'a/b': use letters"),
            ("about = 'one'\nfiles = { 'a.size' = '1 MiB' }", "files: 'a.size' ends in '.size'"),
            (
                "about = 'one'\nfiles = { bar = '1 MiB' }\narguments = ['size={baar.size}']",
                "arguments: 'size={baar.size}' contains the unknown file 'baar.size'; declare it",
            ),
            ("about = 'one'\n[[host]]\nname = '../x'", "host: '../x'"),
            ("about = 'one'\npool = { address = '0x1000' }", "pool: its rules are for 2 hosts"),
            (
                "about = 'one'\npool = { address = 'x' }\nhost = [{ name = 'a' }, { name = 'b' }]",
                "pool: 'x' is not an address",
            ),
            (
                "about = 'one'\nhost = [{ name = 'a' }, { name = 'a' }]",
                "host: two hosts are named 'a'",
            ),
            (
                "about = 'one'\nfiles = { range-0 = '1 MiB' }\npool = { address = '0x1000' }\n\
                 host = [{ name = 'a' }, { name = 'b' }]",
                "files: 'range-0' is a file of the pool",
            ),
            ("about = 'one'\nparameters = \"a\\nb\"", "parameters: a control character"),
            ("about = 'one'\nparameters = 'a -- b'", "parameters: '--' would start"),
            (
                "about = 'one'\nfiles = { bar = '1 MiB' }\narguments = ['mem-path={baar}']",
                "arguments: 'mem-path={baar}' contains the unknown file 'baar'",
            ),
            (
                "about = 'one'\n[[host]]\nname = 'a'\narguments = ['x={y}']",
                "arguments: 'x={y}' contains the unknown file 'y'",
            ),
            ("cpus = 2", "missing field `about`"),
            (
                "about = 'one'\narguments = ['-accel', 'tcg', '-cpu', 'max']",
                "arguments: '-accel' would change what executes the guest; remove it and use --accelerator",
            ),
            ("about = 'one'\narguments = ['--accel', 'tcg']", "'--accel'"),
            ("about = 'one'\narguments = ['-enable-kvm']", "'-enable-kvm'"),
            ("about = 'one'\narguments = ['-cpu', 'max']", "'-cpu' would change"),
            ("about = 'one'\narguments = ['-M', 'q35,accel=tcg']", "'-M'"),
            ("about = 'one'\narguments = ['-machine', 'accel=kvm:tcg']", "'-machine'"),
            ("about = 'one'\narguments = ['-readconfig', 'file']", "'-readconfig'"),
            ("about = 'one'\n[[host]]\nname = 'a'\narguments = ['-accel', 'tcg']", "'-accel'"),
            ("about = 'one'\nmachine = 'q35,accel=tcg'", "machine: 'accel='"),
        ] {
            let path = folder.path().join("mine.toml");
            std::fs::write(&path, text).unwrap();
            let why = find(&path.display().to_string()).unwrap_err();
            assert!(why.contains("mine.toml") && why.contains(cause), "{why}");
        }
        assert!(find("no-such").unwrap_err().contains("ivshmem"));
        assert!(find("/no/such.toml").unwrap_err().contains("/no/such.toml"));
    }
}
