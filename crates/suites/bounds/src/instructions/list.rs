//! Lists of forms in TOML: the built-in one and a user's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use lab::data::{DataError, SourceLocation, read_toml};
use serde::Deserialize;
use toml::Spanned;

use super::operand::{BETWEEN, Template};
use super::value::{ElementType, Value};

/// The built-in list.
pub(crate) const FILE: &str = "instructions.toml";
pub(crate) static BUILT_IN: LazyLock<Result<List, DataError>> =
    LazyLock::new(|| List::read(FILE, BUILT_IN_TEXT));
/// Text of the built-in list.
pub(crate) const BUILT_IN_TEXT: &str = include_str!("../../instructions.toml");

/// Maximum number of forms: an order has no more points.
const MAX_FORMS: usize = 4000;
/// Maximum characters of a form's text, and bytes of its code.
const MAX_TEXT: usize = 200;
const MAX_BYTES: usize = 60;

/// Form of an instruction: its text with operands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InstructionForm {
    /// Level of the factor: the text without commas, and the state of its operands.
    pub(crate) level: String,
    /// Text with its operands.
    pub(crate) text: String,
    pub(crate) class: String,
    pub(crate) template: Template,
    /// Machine code, if it is given in the list.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Whether its latency is expected to be a whole number of cycles.
    pub(crate) integer: bool,
    pub(crate) set: BTreeMap<String, Value>,
    /// Whether its registers are reset before each copy, because it consumes them.
    pub(crate) reset_inputs: bool,
    /// Form that moves its output back to its input.
    pub(crate) back: Option<Template>,
    pub(crate) elements: ElementType,
    /// Line in its file, from 1.
    pub(crate) line: usize,
}

/// List of forms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct List {
    pub(crate) file: String,
    pub(crate) forms: Vec<InstructionForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    class: Vec<Class>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    #[serde(rename = "about")]
    _about: Option<String>,
    #[serde(default)]
    elements: ElementType,
    forms: Vec<Spanned<Declared>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    form: String,
    bytes: Option<String>,
    #[serde(default)]
    integer: bool,
    state: Option<String>,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    reset_inputs: bool,
    before: Option<String>,
    back: Option<String>,
}

/// Keys of `set` besides general registers.
const SETTABLE: [&str; 3] = ["vector", "source", "memory"];
/// General registers that `set` may contain, with their numbers.
pub(crate) const SETTABLE_REGISTERS: [(&str, u8); 6] =
    [("rax", 0), ("rcx", 1), ("rdx", 2), ("rbx", 3), ("rsi", 6), ("rdi", 7)];

impl List {
    /// Parses a list.
    ///
    /// # Errors
    /// Returns the first error with its file and line.
    pub(crate) fn read(file: &str, text: &str) -> Result<Self, DataError> {
        let parsed: File = read_toml(file, text)?;
        let mut forms = Vec::new();
        let mut levels = BTreeSet::new();
        // An index of the line ends, because the data of all suites are parsed at each program start.
        let breaks: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        for class in parsed.class {
            for declared in class.forms {
                let line = breaks.partition_point(|at| *at < declared.span().start) + 1;
                let declared = declared.into_inner();
                let written = declared.form.clone();
                let location = SourceLocation { file: file.into(), line };
                let fault = |what: String| location.error(format!("'{written}': {what}"));
                let form = declared.form(&class.name, class.elements, line).map_err(fault)?;
                if !levels.insert(form.level.clone()) {
                    return Err(fault("it is listed twice; add a 'state' to one".into()));
                }
                forms.push(form);
                if forms.len() > MAX_FORMS {
                    return Err(fault(format!("the list has more than {MAX_FORMS} forms")));
                }
            }
        }
        Ok(Self { file: file.into(), forms })
    }

    /// Creates a list of one form from its text.
    ///
    /// # Errors
    /// Returns the error in the text.
    pub(crate) fn of_text(file: &str, text: &str) -> Result<Self, String> {
        let declared = Declared {
            form: text.into(),
            bytes: None,
            integer: false,
            state: None,
            set: BTreeMap::new(),
            reset_inputs: false,
            before: None,
            back: None,
        };
        let form = declared.form("", ElementType::default(), 0)?;
        Ok(Self { file: file.into(), forms: vec![form] })
    }

    /// Returns the index of the form with this level.
    pub(crate) fn find(&self, level: &str) -> Option<usize> {
        self.forms.iter().position(|form| form.level == level)
    }

    /// Returns the levels that a word names: `all`, `class NAME`, `marked integer`, or one form.
    pub(crate) fn levels_of(&self, word: &str) -> Vec<String> {
        let group = |form: &&InstructionForm| match word.split_once(' ') {
            Some(("class", class)) => form.class == class,
            Some(("marked", "integer")) => form.integer,
            _ => word == "all" || form.level == word,
        };
        self.forms.iter().filter(group).map(|form| form.level.clone()).collect()
    }
}

impl Declared {
    fn form(
        self,
        class: &str,
        elements: ElementType,
        line: usize,
    ) -> Result<InstructionForm, String> {
        let texts =
            [Some(&self.form), self.state.as_ref(), self.before.as_ref(), self.back.as_ref()];
        if texts.into_iter().flatten().any(|text| text.len() > MAX_TEXT) {
            return Err(format!("it is longer than {MAX_TEXT} characters"));
        }
        [Some(&self.form), self.before.as_ref(), self.back.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|text| check_instructions_only(text))?;
        let state = self.state.map(|state| format!(" ({state})")).unwrap_or_default();
        let is_register = |key: &str| SETTABLE_REGISTERS.iter().any(|(name, _)| *name == key);
        let known = |key: &&String| SETTABLE.contains(&key.as_str()) || is_register(key);
        if let Some(key) = self.set.keys().find(|key| !known(key)) {
            let names =
                [&SETTABLE_REGISTERS.map(|(name, _)| name)[..], &SETTABLE].concat().join(", ");
            return Err(format!("'set': unknown key '{key}'; expected one of {names}"));
        }
        let addresses =
            self.set.iter().filter(|(_, value)| matches!(value, Value::MemoryAddress(_)));
        if let Some((key, _)) = addresses.into_iter().find(|(key, _)| !is_register(key)) {
            return Err(format!("'{key}' cannot be an address; only general registers can"));
        }
        // If a form is given by its bytes, its text is only its name.
        let template = match &self.bytes {
            Some(_) => Template::parse("")?,
            None => {
                let before = self.before.map(|before| before + BETWEEN).unwrap_or_default();
                Template::parse(&(before + &self.form))?
            }
        };
        Ok(InstructionForm {
            level: self.form.replace(',', "") + &state,
            text: self.form,
            class: class.into(),
            template,
            bytes: self.bytes.as_deref().map(hexadecimal).transpose()?,
            integer: self.integer,
            set: self.set,
            reset_inputs: self.reset_inputs,
            back: self.back.as_deref().map(Template::parse).transpose()?,
            elements,
            line,
        })
    }
}

/// Rejects text that is more than instructions to an assembler: a comment, a directive, which may run forever, or a line
/// end.
fn check_instructions_only(text: &str) -> Result<(), String> {
    let mut last = ' ';
    let is_directive = |c: char| {
        let begins = !std::mem::replace(&mut last, c).is_ascii_alphanumeric();
        c == '.' && begins
    };
    let what = if text.contains(char::is_control) {
        "a control character"
    } else if ["#", "/*", "//"].iter().any(|mark| text.contains(mark)) {
        "a comment"
    } else if text.contains(is_directive) {
        "a directive"
    } else {
        return Ok(());
    };
    Err(format!("it contains {what}; separate instructions with ';'"))
}

/// Parses bytes like `0F 0B`.
fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let byte = |word: &str| {
        let two = word.len() == 2 && word.bytes().all(|b| b.is_ascii_hexdigit());
        two.then(|| u8::from_str_radix(word, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = text.split_whitespace().map(byte).collect();
    let bytes = bytes.filter(|bytes| (1..=MAX_BYTES).contains(&bytes.len()));
    bytes.ok_or_else(|| format!("'{text}' is not 1 to {MAX_BYTES} bytes, e.g. \"0F 0B\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<List, String> {
        List::read("mine.toml", text).map_err(|fault| fault.to_string())
    }

    fn forms(lines: &str) -> Result<List, String> {
        read(&format!("[[class]]\nname = \"mine\"\nforms = [\n{lines}\n]\n"))
    }

    #[test]
    fn the_built_in_list_is_long_and_has_many_classes() {
        let list = BUILT_IN.as_ref().unwrap();
        let classes: BTreeSet<_> = list.forms.iter().map(|form| &form.class).collect();
        println!("{} forms of {} classes", list.forms.len(), classes.len());
        assert!(list.forms.len() >= 500 && classes.len() >= 20);
        assert!(list.forms.iter().filter(|form| form.integer).count() >= 200);
        assert!(list.forms.iter().all(|form| !form.level.contains([',', '='])));
        assert_eq!(list.levels_of("all").len(), list.forms.len());
        assert!(
            list.levels_of("class mpx").len() > 10 && list.levels_of("marked integer").len() > 200
        );
        assert_eq!(list.levels_of("add R64 R64"), ["add R64 R64"]);
        assert!(list.levels_of("add").is_empty());
    }

    #[test]
    fn all_keys_of_a_form_are_parsed() {
        let list = forms(
            "{ form = \"div R64\", state = \"small\", set = { rax = -1, source = 0x7 } },\n\
             { form = \"jmp next\", bytes = \"EB 00\" },\n\
             { form = \"mov M64, R64\", back = \"mov R64, M64\", integer = true }",
        )
        .unwrap();
        let [div, jump, store] = &list.forms[..] else { panic!("{list:?}") };
        assert_eq!((div.level.as_str(), div.line, div.integer), ("div R64 (small)", 4, false));
        assert_eq!(div.set["rax"].bits(ElementType::Integers, 0), u64::MAX);
        assert_eq!(jump.bytes.as_deref(), Some(&[0xEB, 0][..]));
        assert!(store.integer && store.back.is_some() && store.line == 6);
        let copy =
            forms("{ form = \"movsb\", reset_inputs = true, set = { rsi = \"memory+64\" } }")
                .unwrap();
        assert_eq!(copy.forms[0].set["rsi"].bits(ElementType::Integers, 4096), 4160);
        assert!(copy.forms[0].reset_inputs);
    }

    #[test]
    fn errors_name_the_line() {
        let faults = [
            (
                "{ form = \"add R64, R64\" },\n{ form = \"add R64, R64\" }",
                ":5: 'add R64, R64': it is listed twice",
            ),
            ("{ form = \"add RAX, R64\" }", ":4: 'add RAX, R64': unknown operand 'RAX'"),
            ("{ form = \"nop\", bytes = \"9\" }", ":4: 'nop': '9' is not 1 to 60 bytes"),
            ("\n{ form = \"nop\", set = { rsp = 1 } }", ":5: 'nop': 'set': unknown key 'rsp'"),
            ("{ form = \"nop\", colour = 1 }", ":4"),
            ("{ form = \"nop\\nnop\" }", ":4: 'nop"),
            ("{ form = \"nop\\u0000\" }", "contains a control character"),
            ("{ form = \"nop # none\" }", ":4: 'nop # none': it contains a comment"),
            ("{ form = \"nop\", before = \"nop // none\" }", ":4: 'nop': it contains a comment"),
            ("{ form = \"nop\", back = \"/* nop */\" }", "it contains a comment"),
            (
                "{ form = \".fill 100000000000\" }",
                ":4: '.fill 100000000000': it contains a directive",
            ),
            ("{ form = \"nop; .fill 9\" }", "it contains a directive"),
            ("{ form = \"a:.fill 9\" }", "it contains a directive"),
            ("{ form = \"lodsb\", set = { rsi = \"memory+9999\" } }", ":4"),
            ("{ form = \"nop\", set = { source = \"memory\" } }", "'source' cannot be an address"),
        ];
        for (lines, expected) in faults {
            let fault = forms(lines).unwrap_err();
            assert!(fault.starts_with("mine.toml:") && fault.contains(expected), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn parsing_a_list_does_not_panic_and_errors_are_one_line(text in ".{0,200}") {
            if let Err(fault) = read(&text) {
                prop_assert!(!fault.contains('\n'));
            }
        }

        #[test]
        fn parsing_a_form_does_not_panic_and_errors_are_one_line(form in "[A-Za-z0-9 ,+*{}\\[\\]]{0,40}") {
            if let Err(fault) = forms(&format!("{{ form = \"{form}\" }}")) {
                prop_assert!(fault.contains(":4") && !fault.contains('\n'), "{}", fault);
            }
        }

        #[test]
        fn bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..16)) {
            let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            prop_assert_eq!(hexadecimal(&text.join(" ")), Ok(bytes));
        }
    }
}
