//! The compiled code that a program times: the functions that read the time-stamp counter, those that their modules
//! declare as timed, and what these call. It is read from the symbols of the program's file, without debug information.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use iced_x86::{Code as Opcode, Instruction, Mnemonic, OpKind};
use machine::elf_functions::{self, ElfFunction};

use super::listing::{self, Code, Symbols, instructions};

/// Start of the symbols of assembly in the program; symbols of Rust state their module.
const ASSEMBLY: &str = "tollgate_";
/// Maximum number of calls between a function and one that reads the clock: the loop and what it repeats.
const MAX_CALLS: usize = 2;
/// File of functions whose symbols name no module.
const UNNAMED: &str = "other";

/// The functions of a program.
pub struct Program {
    functions: BTreeMap<u64, ElfFunction>,
    symbols: Symbols,
}

/// Listings of functions, by the module that contains them, e.g. `copy.faults`.
pub(super) type Listings = BTreeMap<String, String>;

impl Program {
    /// Reads the functions of an ELF file.
    ///
    /// # Errors
    /// Returns the reason in a few words if the file is none, or has no symbols.
    pub fn read(file: &[u8]) -> Result<Self, String> {
        let functions = elf_functions::read(file)?;
        let symbols = functions.iter().map(|(at, one)| (*at, one.name.clone())).collect();
        Ok(Self { functions, symbols: Rc::new(symbols) })
    }

    /// Lists the timed functions of some crates: those that read the time-stamp counter, those of `modules`, e.g.
    /// `copy::functions`, and those of the crates that they call or whose address they take, up to [`MAX_CALLS`] calls away.
    pub fn timed(&self, crates: &[&str], modules: &BTreeSet<String>) -> Listings {
        let (mut named, mut unnamed) = (Vec::new(), Vec::new());
        for (address, function) in &self.functions {
            let module = module(&function.name, crates);
            let is_declared = module.is_some_and(|_| is_within(&function.name, modules));
            let is_of_crates = || {
                module.is_some()
                    || function.name.starts_with(ASSEMBLY)
                    || self.called(*address, function, "", crates).next().is_some()
            };
            let is_of_another = module.is_none() && is_of_crate(&function.name);
            let is_timed = || !is_of_another && reads_clock(function, *address) && is_of_crates();
            if is_declared || is_timed() {
                match module {
                    Some(module) => named.push((*address, file_name(module))),
                    None => unnamed.push((*address, UNNAMED.into())),
                }
            }
        }
        let mut files: BTreeMap<String, BTreeMap<u64, &ElfFunction>> = BTreeMap::new();
        let mut added = BTreeSet::new();
        // Assembly that a function calls is in the file of that function.
        for roots in [named, unnamed] {
            self.add_called(roots, crates, &mut added, &mut files);
        }
        files.into_iter().map(|(file, functions)| (file, self.listing(&functions))).collect()
    }

    /// Adds functions to their files, with those of the crates that they call, up to [`MAX_CALLS`] calls away.
    fn add_called<'p>(
        &'p self,
        roots: Vec<(u64, String)>,
        crates: &[&str],
        added: &mut BTreeSet<u64>,
        files: &mut BTreeMap<String, BTreeMap<u64, &'p ElfFunction>>,
    ) {
        let mut pending = roots;
        // Functions that are fewer calls away come first.
        for calls in 0..=MAX_CALLS {
            let mut called = Vec::new();
            for (address, file) in pending {
                let Some(function) = self.functions.get(&address) else { continue };
                if !added.insert(address) {
                    continue;
                }
                // One whose name states no module is a whole thread of a suite.
                if calls < MAX_CALLS && file != UNNAMED {
                    called.extend(self.called(address, function, &file, crates));
                }
                files.entry(file).or_default().insert(address, function);
            }
            pending = called;
        }
    }

    /// Lists the functions whose names start with one of `starts`, and all functions that they call, up to [`MAX_CALLS`]
    /// calls away; empty if there is none.
    pub fn reached(&self, starts: &[&str]) -> String {
        let name = |name: &str| name.trim_start_matches('<').to_owned();
        let is_start =
            |one: &ElfFunction| starts.iter().any(|start| name(&one.name).starts_with(start));
        let roots = self.functions.iter().filter(|(_, one)| is_start(one));
        let mut pending: Vec<u64> = roots.map(|(address, _)| *address).collect();
        let mut reached = BTreeMap::new();
        for _ in 0..=MAX_CALLS {
            let mut called = Vec::new();
            for address in pending {
                let Some(function) = self.functions.get(&address) else { continue };
                if reached.insert(address, function).is_none() {
                    let all = instructions(&function.bytes, address);
                    called.extend(all.iter().filter_map(target));
                }
            }
            pending = called;
        }
        self.listing(&reached)
    }

    /// Returns the functions of the crates, and assembly, that a function calls or takes the address of, each with its file.
    fn called(
        &self,
        address: u64,
        function: &ElfFunction,
        file: &str,
        crates: &[&str],
    ) -> impl Iterator<Item = (u64, String)> {
        let of_target = move |target: u64| {
            let called = self.functions.get(&target)?;
            let is_assembly = called.name.starts_with(ASSEMBLY);
            let assembly = || is_assembly.then(|| file.to_owned());
            Some((target, module(&called.name, crates).map(file_name).or_else(assembly)?))
        };
        let all = instructions(&function.bytes, address).into_iter();
        all.filter_map(|one| target(&one)).filter_map(of_target)
    }

    /// Returns whether it has a function in a module, or in a module within it.
    pub fn has_module(&self, module: &str) -> bool {
        let modules = BTreeSet::from([module.to_owned()]);
        self.functions.values().any(|function| is_within(&function.name, &modules))
    }

    fn listing(&self, functions: &BTreeMap<u64, &ElfFunction>) -> String {
        let mut text = String::new();
        for (address, ElfFunction { name, bytes }) in functions {
            let code = Code { bytes, address: *address, symbols: &self.symbols, from: 0 };
            let length = bytes.len();
            let _ = writeln!(text, "{name}\nat {address:#x} of the program, {length} bytes\n");
            let _ = writeln!(text, "{}", listing::listing(&code));
        }
        text
    }
}

/// Returns whether a function reads the time-stamp counter.
fn reads_clock(function: &ElfFunction, address: u64) -> bool {
    // The bytes of rdtsc and rdtscp, before the slower decoder.
    let has_bytes = |code: &[u8]| function.bytes.windows(code.len()).any(|window| window == code);
    let is_read = |one: &Instruction| matches!(one.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp);
    (has_bytes(&[0x0F, 0x31]) || has_bytes(&[0x0F, 0x01, 0xF9]))
        && instructions(&function.bytes, address).iter().any(is_read)
}

/// Returns the address that an instruction calls, jumps to or takes.
fn target(instruction: &Instruction) -> Option<u64> {
    if instruction.code() == Opcode::Lea_r64_m && instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let is_near = (0..instruction.op_count())
        .any(|operand| instruction.op_kind(operand) == OpKind::NearBranch64);
    is_near.then(|| instruction.near_branch_target())
}

/// Returns the first path in a function's name: `copy::faults::Probe` of `<copy::faults::Probe as lab::method::Probe>::measure`.
fn path(name: &str) -> &str {
    let path = name.trim_start_matches(['<', '&', '[', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    let end = path.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    path[..end.unwrap_or(path.len())].trim_end_matches(':')
}

/// Returns the module in a function's name, without the function, if it is in one of the crates:
/// `copy::faults::touch` of `<copy::faults::touch::Pass as lab::method::Probe>::measure`.
fn module<'n>(name: &'n str, crates: &[&str]) -> Option<&'n str> {
    let (module, _) = path(name).rsplit_once("::")?;
    let first = module.split("::").next()?;
    crates.contains(&first).then_some(module)
}

/// Returns whether a function's name states a crate other than those of Rust, whose generic functions contain code of others.
fn is_of_crate(name: &str) -> bool {
    let (first, rest) = path(name).split_once("::").unwrap_or_default();
    !rest.is_empty() && !matches!(first, "alloc" | "core" | "std")
}

/// Returns whether a function is in one of the modules, or in a module within them.
fn is_within(name: &str, modules: &BTreeSet<String>) -> bool {
    let name = name.trim_start_matches('<');
    modules
        .iter()
        .any(|module| name.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with("::")))
}

/// Returns the file of a module: its crate and first module, e.g. `copy.faults`.
fn file_name(module: &str) -> String {
    module.split("::").take(2).collect::<Vec<_>>().join(".")
}

/// Returns whether a file lists functions of a module, e.g. `copy.faults` of `copy::faults`, or of `copy`.
pub(super) fn is_of_module(file: &str, module: &str) -> bool {
    let is_in_crate = |rest: &str| rest.starts_with('.') && !module.contains("::");
    file == file_name(module) || file.strip_prefix(module).is_some_and(is_in_crate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_a_function_is_in_its_name() {
        let crates = ["copy", "report"];
        for (name, expected) in [
            ("copy::faults::touch::pass", Some("copy::faults::touch")),
            ("<copy::faults::Probe as lab::method::Probe>::measure", Some("copy::faults")),
            ("<&mut copy::faults::Probe as core::fmt::Debug>::fmt", Some("copy::faults")),
            (
                "copy::throughput::runner::Walk<M>::jobs::{{closure}}",
                Some("copy::throughput::runner"),
            ),
            ("core::ptr::drop_in_place<copy::faults::Probe>", None),
            ("<F as lab::method::Probe<P>>::measure", None),
            ("copying::one::two", None),
            ("main", None),
        ] {
            assert_eq!(module(name, &crates), expected, "{name}");
        }
        for (name, expected) in [
            ("stream::suite::application::Loop::run", true),
            ("<stream::suite::Alone as stream::suite::Measure<F>>::pass", true),
            ("<F as lab::method::Probe<P>>::measure", false),
            ("std::sys::backtrace::__rust_begin_short_backtrace", false),
            ("core::ptr::drop_in_place<copy::faults::Probe>", false),
            ("tollgate_copy_empty", false),
        ] {
            assert_eq!(is_of_crate(name), expected, "{name}");
        }
        assert_eq!(file_name("copy::faults::touch"), "copy.faults");
        for module in ["copy", "copy::faults", "copy::faults::touch"] {
            assert!(is_of_module("copy.faults", module), "{module}");
        }
        for module in ["cop", "copy::frames", "copy::fault"] {
            assert!(!is_of_module("copy.faults", module), "{module}");
        }
        let modules = BTreeSet::from(["copy::functions".to_owned()]);
        assert!(is_within("copy::functions::avx2::copy", &modules));
        assert!(!is_within("copy::functions_of_others::copy", &modules));
    }

    /// Reads the clock, and calls a function that does not.
    #[inline(never)]
    fn timed_by_this_test(rounds: u64) -> u64 {
        let start = machine::tsc::start();
        for round in 0..rounds {
            called_by_this_test(round);
        }
        machine::tsc::stop() - start
    }

    #[inline(never)]
    fn called_by_this_test(round: u64) -> u64 {
        std::hint::black_box(round)
    }

    #[test]
    fn functions_that_read_the_clock_are_listed_with_what_they_call() {
        std::hint::black_box(timed_by_this_test(std::hint::black_box(3)));
        let file = std::fs::read("/proc/self/exe").unwrap();
        let program = Program::read(&file).unwrap();
        let listings = program.timed(&["report"], &BTreeSet::new());
        let text = &listings["report.bundle"];
        assert!(text.contains("::timed_by_this_test\n"), "{text}");
        assert!(text.contains("::called_by_this_test\n"), "{text}");
        assert!(text.contains("rdtsc"), "{text}");
        assert!(!text.contains("::functions_that_read_the_clock"), "{text}");
        let none = program.timed(&["nothing"], &BTreeSet::new());
        assert!(!none.contains_key("report.bundle"));
    }

    #[test]
    fn what_named_functions_call_is_listed_regardless_of_their_names() {
        let function =
            |name: &str, bytes: &[u8]| ElfFunction { name: name.into(), bytes: bytes.into() };
        let call = |from: u64, to: u64| {
            [&[0xE8][..], &(to.wrapping_sub(from + 5) as i32).to_le_bytes()].concat()
        };
        let functions = BTreeMap::from([
            (
                0x1000,
                function(
                    "<inside::calls::Inside as interface::Trusted>::malloc",
                    &call(0x1000, 0x2000),
                ),
            ),
            (0x2000, function("malloc", &call(0x2000, 0x3000))),
            (0x3000, function("chunk", &call(0x3000, 0x4000))),
            (0x4000, function("three_calls_away", &[0xC3])),
            (0x5000, function("not_called", &[0xC3])),
        ]);
        let program = Program { functions, symbols: Symbols::default() };
        let text = program.reached(&["inside::"]);
        for (name, is_listed) in
            [("malloc", true), ("chunk", true), ("three_calls_away", false), ("not_called", false)]
        {
            assert_eq!(text.lines().any(|line| line == name), is_listed, "{name}: {text}");
        }
        assert_eq!(program.reached(&["outside::"]), "");
    }
}
