//! Dumps of InstLatX64, which AIDA64 writes: one line per instruction. Some have AIDA64's own layout: `Inst` before the number
//! of an instruction, and a head of fields such as `CPUID Revision : 00A10F11h`.

use crate::error::ExchangeError;
use crate::form::FormKey;
use crate::input::Input;
use crate::instructions::{ForeignForm, Latencies};
use crate::source::{ForeignCpu, Format, Import, Source, Stated};

/// Maximum number of instructions; the largest known dump has 5,000.
const MAX_FORMS: usize = 100_000;
/// Maximum number of cycles that an instruction takes.
const MAX_CYCLES: f64 = 1e9;
/// The form that shows whether a cycle of the dump is a core cycle.
const UNIT_FORM: &str = "ADD R64,R64";

/// Line of an instruction.
struct DumpLine<'a> {
    /// Instruction set, e.g. `AVX512VL`.
    set: &'a str,
    text: &'a str,
    /// Cycles; `None` if the dump states none, e.g. `[memory dep.]`.
    latency: Option<f64>,
    throughput: Option<f64>,
}

/// Reads the instructions of a dump.
///
/// # Errors
/// Returns an error if the file has no instructions.
pub(crate) fn import(input: &Input) -> Result<Import, ExchangeError> {
    let mut forms: Vec<ForeignForm> = Vec::new();
    let mut lines = 0;
    for line in input.lines().filter_map(|(_, line)| parse_line(line)) {
        lines += 1;
        if lines > MAX_FORMS {
            let what = format!("more than {MAX_FORMS} instructions; give a file with one dump");
            return Err(ExchangeError::content(&input.file, what));
        }
        forms.extend(line.form());
    }
    if lines == 0 {
        let what = "no instructions of InstLatX64; expected lines such as '22 X86 :ADD r32, r32  L: 0.25ns= 1.0c  T: 0.06ns= 0.25c'";
        return Err(ExchangeError::content(&input.file, what));
    }
    let mut source = Source::of(Format::Instlatx64, "InstLatX64 (AIDA64)", input);
    describe(&mut source, input);
    let unit = forms.iter().find(|form| form.key.as_str() == UNIT_FORM);
    if let Some(latency) = unit.and_then(|form| form.latencies.register) {
        // With turbo, a cycle of the dump is one of the nominal clock.
        let core =
            if (latency.value - 1.0).abs() <= 0.05 { "a core cycle" } else { "not a core cycle" };
        source.condition(
            "cycle",
            format!("{core}: an addition takes {} of its cycles", latency.value),
        );
    }
    source.condition("instructions", format!("{lines}, {} with plain operands", forms.len()));
    let cpu = signature(input);
    let cpu = cpu.map_or(ForeignCpu::Unknown, |it| ForeignCpu::Model(it.family, it.model));
    Ok(Import::of_forms(source, forms, cpu))
}

/// Returns the value of a field of the head, e.g. of `CPUID Revision    : 00A10F11h`.
fn field<'a>(input: &'a Input, name: &str) -> Option<&'a str> {
    let named = |line: &'a str| {
        let (start, value) = line.split_once(':')?;
        (start.trim() == name).then(|| value.trim())
    };
    input.lines().find_map(|(_, line)| named(line))
}

/// Adds what the head of the dump states.
fn describe(source: &mut Source, input: &Input) {
    let build = input.lines().find_map(|(_, line)| line.split_once(".dll build:"));
    let build = build.map(|(_, build)| build.trim()).or_else(|| field(input, "BenchDLL Version"));
    source.condition("build", build.unwrap_or_default());
    let quoted = |text: &str| text.split('"').nth(1).map(|cpu| cpu.trim().to_owned());
    let first = |start: &str| input.lines().find(|(_, line)| line.starts_with(start));
    let named = ["CPU#000 Type:", "CPU#00 Type:", "CPU#00 Family:"];
    let cpu = named.iter().find_map(|start| quoted(first(start)?.1));
    let cpu = cpu.or_else(|| field(input, "CPUID CPU Name").map(str::to_owned));
    source.condition("CPU", cpu.unwrap_or_default());
    if let Some(signature) = signature(input) {
        let CpuSignature { family, model, stepping } = signature;
        source.condition(
            "CPU signature",
            format!("family {family}, model {model}, stepping {stepping}"),
        );
    }
    let frequency = input.lines().find_map(|(_, line)| line.split_once("Freq: "));
    let frequency = frequency.and_then(|(_, rest)| rest.split_whitespace().next());
    let frequency = frequency.or_else(|| field(input, "CPU#00 Frequency"));
    let frequency = frequency.or_else(|| clock(field(input, "CPU Type")?));
    source.condition("frequency", frequency.unwrap_or_default());
}

/// Returns the clock in the type of a CPU, e.g. of `2x 96-Core , 2372 MHz (23.75 x 100)`.
fn clock(cpu: &str) -> Option<&str> {
    cpu.split([',', '(']).map(str::trim).find(|part| part.ends_with(" MHz"))
}

/// Family, model and stepping of a CPU, as the kernel shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuSignature {
    family: u32,
    model: u32,
    stepping: u32,
}

/// Returns the signature of the first CPU, from leaf 1 of CPUID: `CoreType:0x200506e3` has its lower 28 bits,
/// `CPUID Revision : 00A10F11h` all.
fn signature(input: &Input) -> Option<CpuSignature> {
    let core_type = input.text.split_once("CoreType:0x").map(|(_, rest)| rest);
    let rest = core_type.or_else(|| field(input, "CPUID Revision"))?;
    let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    let eax = u32::from_str_radix(rest.get(..digits)?, 16).ok()?;
    let field = |shift: u32, bits: u32| (eax >> shift) & ((1 << bits) - 1);
    let base = field(8, 4);
    let family = if base == 0xf { base + field(20, 8) } else { base };
    let has_extended_model = base == 0x6 || base == 0xf;
    let model = field(4, 4) + if has_extended_model { field(16, 4) << 4 } else { 0 };
    Some(CpuSignature { family, model, stepping: field(0, 4) })
}

/// Parses `  71 AMD64 :ADD r64, r64    L:   0.33ns=  1.0c  T:   0.11ns=  0.33c`, also with `Inst` before the number.
fn parse_line(line: &str) -> Option<DumpLine<'_>> {
    let line = line.trim_start();
    let line = line.strip_prefix("Inst").unwrap_or(line).trim_start();
    let (number, rest) = line.split_once(' ')?;
    number.parse::<u32>().ok()?;
    let (set, rest) = rest.split_once(':')?;
    let (rest, throughput) = rest.rsplit_once(" T:")?;
    let (text, latency) = rest.rsplit_once(" L:")?;
    Some(DumpLine {
        set: set.trim(),
        text: text.trim(),
        latency: cycles(latency),
        throughput: cycles(throughput),
    })
}

/// Parses the cycles of `0.33ns=  1.0c`.
fn cycles(text: &str) -> Option<f64> {
    let (_, cycles) = text.trim().strip_suffix('c')?.split_once("ns=")?;
    cycles.trim().parse().ok().filter(|cycles| (0.0..=MAX_CYCLES).contains(cycles))
}

impl DumpLine<'_> {
    /// Returns the form; `None` if the line is not of one instruction with plain operands.
    fn form(&self) -> Option<ForeignForm> {
        let (key, registers) = FormKey::of_instlatx64(self.text)?;
        let latency = self.latency.map(Stated::exact);
        let is_load =
            ["MOV ", "MOVZX ", "MOVSX ", "MOVSXD "].iter().any(|it| key.as_str().starts_with(it));
        let latencies = match (key.has_memory(), key.writes_memory()) {
            (false, _) => Latencies { register: latency, flags: latency, ..Latencies::default() },
            // A chain through memory.
            (true, true) => Latencies { memory: latency, ..Latencies::default() },
            // A chain through the address. Of other forms with a load it is not stated what is chained.
            (true, false) if is_load => Latencies { address: latency, ..Latencies::default() },
            (true, false) => Latencies::default(),
        };
        let throughput = self.throughput.map(Stated::exact);
        Some(ForeignForm {
            key,
            name: self.text.into(),
            registers,
            has_long_encoding: self.set.starts_with("AVX512"),
            latencies,
            throughput,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A dump in the form of AIDA64's, with invented values.
    const DUMP: &str = concat!(
        "aida_bench64.dll build: 4.3.790.0 Oct 17 2018 09:21:32\n",
        "QUICKY Arch:X64 CPUCount:8 NUMA:0 Freq: 4007.93MHz Priority:080\n",
        "CPU#000 Vendor: GenuineIntel Family: 6 Model: 5e Stepping: 3 CoreType:0x200506e3\n",
        "CPU#000 Type: \"Example CPU @ 4.00GHz\"\n",
        "   0 X86                 :NOP                  L: [no true dep.]   T:   0.06ns=  0.25c\n",
        "   1 X86                 :0x66 NOP             L: [no true dep.]   T:   0.06ns=  0.25c\n",
        "  22 AMD64               :ADD r64, r64         L:   0.25ns=  1.0c  T:   0.06ns=  0.25c\n",
        "  23 AMD64               :SUB r64, r64         L:   0.06ns=  0.3c  T:   0.06ns=  0.25c\n",
        "  24 AMD64               :SUB r1_64, r2_64     L:   0.25ns=  1.0c  T:   0.06ns=  0.25c\n",
        "  27 AMD64               :MOV r64, [m64]       L:   1.00ns=  4.0c  T:   0.13ns=  0.50c\n",
        "  30 AMD64               :ADD r64, [m64]       L:   1.25ns=  5.0c  T:   0.13ns=  0.50c\n",
        "  31 AMD64               :ADD [m64], r64       L:   1.50ns=  6.0c  T:   0.25ns=  1.00c\n",
        "  37 AVX512VL            :{EVEX} VADDPD ymm, ymm, ymm L:   1.00ns=   4.00c  T:   0.25ns=   1.000c\n",
        "  38 AVX                 :{VEX}  VADDPD ymm, ymm, ymm L:   1.00ns=   4.00c  T:   0.13ns=   0.500c\n",
        "  39 AVX512F             :{EVEX} VADDPD zmm, zmm, zmm L:   1.00ns=   4.00c  T:   0.25ns=   1.000c\n",
        " 509 X86                 :REPE CMPSB           BW in L1D: 3.37 B/c  13079MiB/s\n",
    );

    /// A dump in AIDA64's own layout, with invented values.
    const FIELDS: &str = concat!(
        "------[ Versions ]------\n\n",
        "Program Version : AIDA64 Engineer v6.80.6200\n",
        "BenchDLL Version: 4.6.873.8-x64\n\n",
        "------[ CPU Info ]------\n\n",
        "CPU Type          : 2x 96-Core , 2400 MHz (24 x 100)\n",
        "Instruction Set   : x86, x86-64, MMX, SSE\n",
        "CPUID CPU Name    : Example 9000 96-Core Processor\n",
        "CPUID Revision    : 00A10F11h\n\n",
        "Inst    0 X86             : NOP                  L: [no true dep.]    T:   0.00ns=   0.01c\n",
        "Inst   73 AMD64           : ADD r64, r64         L:   0.42ns=   1.0c  T:   0.11ns=   0.25c\n",
        "Inst 4247 AVX512VL_VPOPCNTDQ: VPOPCNTD xmm, xmm  L:   0.83ns=   2.0c  T:   0.21ns=   0.51c\n",
        "Dump took 22 minutes, 6 sec\n",
    );

    fn read(text: &str) -> Result<Import, String> {
        import(&Input::of("dump.txt".into(), text.as_bytes())).map_err(|why| why.to_string())
    }

    #[test]
    fn lines_have_latency_and_throughput_by_dependency() {
        let read = read(DUMP).unwrap();
        let form = |key: &'static str| read.forms.iter().filter(move |it| it.key.as_str() == key);
        let one = |key: &'static str| form(key).next().unwrap();
        let value = |stated: Option<Stated>| stated.map(|it| it.value);
        let add = one("ADD R64,R64");
        assert_eq!(value(add.latencies.register), Some(1.0));
        assert_eq!(value(add.throughput), Some(0.25));
        assert_eq!(value(one("MOV R64,M64").latencies.address), Some(4.0));
        assert_eq!(one("ADD R64,M64").latencies, Latencies::default());
        assert_eq!(value(one("ADD M64,R64").latencies.memory), Some(6.0));
        assert_eq!(value(one("NOP").latencies.register), None);
        assert_eq!(form("SUB R64,R64").count(), 2);
        let long: Vec<bool> = form("VADDPD YMM,YMM,YMM").map(|it| it.has_long_encoding).collect();
        assert_eq!(long, [true, false]);
        assert_eq!(
            form("VADDPD YMM,YMM,YMM").map(|it| value(it.throughput)).collect::<Vec<_>>(),
            [Some(1.0), Some(0.5)]
        );
        assert_eq!(form("VADDPD ZMM,ZMM,ZMM").count(), 1);
        let condition = |name: &str| {
            let conditions = &read.source.conditions;
            conditions.iter().find(|it| it.name == name).map(|it| it.value.clone())
        };
        assert_eq!(condition("CPU").unwrap(), "Example CPU @ 4.00GHz");
        assert_eq!(condition("frequency").unwrap(), "4007.93MHz");
        assert_eq!(condition("build").unwrap(), "4.3.790.0 Oct 17 2018 09:21:32");
        assert_eq!(condition("CPU signature").unwrap(), "family 6, model 94, stepping 3");
        assert!(condition("cycle").unwrap().starts_with("a core cycle"));
    }

    #[test]
    fn signatures_have_the_extended_family_and_model() {
        let of = |text: &str| {
            signature(&Input::of(String::new(), text.as_bytes())).map(|it| (it.family, it.model))
        };
        assert_eq!(of("CoreType:0x10b40f40 x"), Some((0x1a, 0x44)));
        assert_eq!(of("CoreType:0x10100f42"), Some((0x10, 4)));
        assert_eq!(of("CoreType:0xb00c0662"), Some((6, 0xc6)));
        assert_eq!(of("CoreType:0x"), None);
        assert_eq!(of("none"), None);
    }

    #[test]
    fn dumps_with_fields_are_read() {
        let read = read(FIELDS).unwrap();
        let forms: Vec<(&str, Option<f64>)> = read
            .forms
            .iter()
            .map(|it| (it.key.as_str(), it.throughput.map(|stated| stated.value)))
            .collect();
        assert_eq!(
            forms,
            [("NOP", Some(0.01)), ("ADD R64,R64", Some(0.25)), ("VPOPCNTD XMM,XMM", Some(0.51))]
        );
        assert!(read.forms[2].has_long_encoding);
        assert!(matches!(read.cpu, ForeignCpu::Model(25, 17)));
        let conditions = &read.source.conditions;
        let condition =
            |name: &str| conditions.iter().find(|it| it.name == name).map(|it| it.value.as_str());
        assert_eq!(condition("CPU"), Some("Example 9000 96-Core Processor"));
        assert_eq!(condition("CPU signature"), Some("family 25, model 17, stepping 1"));
        assert_eq!(condition("frequency"), Some("2400 MHz"));
        assert_eq!(condition("build"), Some("4.6.873.8-x64"));
        assert!(condition("cycle").unwrap().starts_with("a core cycle"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(read("hello\n").unwrap_err().contains("no instructions of InstLatX64"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}", cut in 0usize..1500) {
            let cut_off = |dump: &str| dump.chars().take(cut).collect::<String>() + &text;
            for text in [text.clone(), cut_off(DUMP), cut_off(FIELDS)] {
                if let Err(error) = read(&text) {
                    prop_assert!(!error.contains('\n'));
                }
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = import(&Input::of("dump.txt".into(), &bytes));
        }
    }
}
