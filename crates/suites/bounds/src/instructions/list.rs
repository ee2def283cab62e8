//! Lists of forms in TOML: the suite's own, and a person's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use lab::data::{DataError, SourceLocation, read_toml};
use serde::Deserialize;
use toml::Spanned;

use super::operand::{BETWEEN, Template};
use super::value::{Holds, Value};

/// The suite's own list.
pub(crate) const FILE: &str = "instructions.toml";
pub(crate) static BUILT_IN: LazyLock<Result<List, DataError>> =
    LazyLock::new(|| List::read(FILE, BUILT_IN_TEXT));
/// Its text.
pub(crate) const BUILT_IN_TEXT: &str = include_str!("../../instructions.toml");

/// The most forms of a list: an order has no more points.
const MAX_FORMS: usize = 4000;
/// The most characters of a form and bytes of code: of some instructions.
const MAX_TEXT: usize = 200;
const MAX_BYTES: usize = 60;

/// One form of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InstructionForm {
    /// What the factor calls it: its text without commas, and the state of its operands.
    pub(crate) level: String,
    /// The text as written.
    pub(crate) text: String,
    pub(crate) class: String,
    pub(crate) template: Template,
    /// Its bytes, where the list gives them.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Whether its latency is expected to be a whole number of cycles.
    pub(crate) integer: bool,
    pub(crate) set: BTreeMap<String, Value>,
    /// Whether registers that it names are set anew before each copy, for it uses them up.
    pub(crate) reset_inputs: bool,
    /// The form that leads its output back.
    pub(crate) back: Option<Template>,
    pub(crate) holds: Holds,
    /// The line in its file, from 1.
    pub(crate) line: usize,
}

/// A list of forms.
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
    holds: Holds,
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

/// What `set` may name besides general registers.
const SETTABLE: [&str; 3] = ["vector", "source", "memory"];
/// The general registers that `set` may name, by their numbers.
pub(crate) const NAMED: [(&str, u8); 6] =
    [("rax", 0), ("rcx", 1), ("rdx", 2), ("rbx", 3), ("rsi", 6), ("rdi", 7)];

impl List {
    /// Reads a list.
    ///
    /// # Errors
    /// One line with the file, the line, and what is wrong there.
    pub(crate) fn read(file: &str, text: &str) -> Result<Self, DataError> {
        let parsed: File = read_toml(file, text)?;
        let mut forms = Vec::new();
        let mut levels = BTreeSet::new();
        // Where lines end: each suite's data are read whenever the program starts.
        let breaks: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        for class in parsed.class {
            for declared in class.forms {
                let line = breaks.partition_point(|at| *at < declared.span().start) + 1;
                let declared = declared.into_inner();
                let written = declared.form.clone();
                let location = SourceLocation { file: file.into(), line };
                let fault = |what: String| location.error(format!("'{written}': {what}"));
                let form = declared.form(&class.name, class.holds, line).map_err(fault)?;
                if !levels.insert(form.level.clone()) {
                    return Err(fault("it stands twice; give one a 'state'".into()));
                }
                forms.push(form);
                if forms.len() > MAX_FORMS {
                    return Err(fault(format!(
                        "it is one more than the {MAX_FORMS} forms of a list"
                    )));
                }
            }
        }
        Ok(Self { file: file.into(), forms })
    }

    /// A list of one form, given by its text alone.
    ///
    /// # Errors
    /// What is wrong with the text.
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
        let form = declared.form("", Holds::default(), 0)?;
        Ok(Self { file: file.into(), forms: vec![form] })
    }

    /// The form of a level.
    pub(crate) fn find(&self, level: &str) -> Option<usize> {
        self.forms.iter().position(|form| form.level == level)
    }

    /// The levels that a word means: one form's, a class's, `integer` forms', or all.
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
    fn form(self, class: &str, holds: Holds, line: usize) -> Result<InstructionForm, String> {
        let texts =
            [Some(&self.form), self.state.as_ref(), self.before.as_ref(), self.back.as_ref()];
        if texts.into_iter().flatten().any(|text| text.len() > MAX_TEXT) {
            return Err(format!("it is longer than {MAX_TEXT} characters"));
        }
        [Some(&self.form), self.before.as_ref(), self.back.as_ref()]
            .into_iter()
            .flatten()
            .try_for_each(|text| instructions_alone(text))?;
        let state = self.state.map(|state| format!(" ({state})")).unwrap_or_default();
        let named = |key: &str| NAMED.iter().any(|(name, _)| *name == key);
        let known = |key: &&String| SETTABLE.contains(&key.as_str()) || named(key);
        if let Some(key) = self.set.keys().find(|key| !known(key)) {
            let names = [&NAMED.map(|(name, _)| name)[..], &SETTABLE].concat().join(", ");
            return Err(format!("'set' knows no '{key}', only {names}"));
        }
        let places = self.set.iter().filter(|(_, value)| matches!(value, Value::MemoryAddress(_)));
        if let Some((key, _)) = places.into_iter().find(|(key, _)| !named(key)) {
            return Err(format!("'{key}' holds no place in memory, general registers alone do"));
        }
        // What is given by bytes is not taken apart: its text is for people.
        let template = match &self.bytes {
            Some(_) => Template::read("")?,
            None => {
                let before = self.before.map(|before| before + BETWEEN).unwrap_or_default();
                Template::read(&(before + &self.form))?
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
            back: self.back.as_deref().map(Template::read).transpose()?,
            holds,
            line,
        })
    }
}

/// Refuses a text in which an assembler would find more than instructions: a comment, which hides what follows, a
/// directive, which may run for ever, or another line.
fn instructions_alone(text: &str) -> Result<(), String> {
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
    Err(format!("it has {what}: give instructions alone, with ';' between them"))
}

/// Bytes as `0F 0B`.
fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let byte = |word: &str| {
        let two = word.len() == 2 && word.bytes().all(|b| b.is_ascii_hexdigit());
        two.then(|| u8::from_str_radix(word, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = text.split_whitespace().map(byte).collect();
    let bytes = bytes.filter(|bytes| (1..=MAX_BYTES).contains(&bytes.len()));
    bytes.ok_or_else(|| format!("'{text}' are no 1 to {MAX_BYTES} bytes, as \"0F 0B\""))
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
    fn the_suites_own_list_is_long_and_of_many_classes() {
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
    fn a_form_has_all_that_is_written() {
        let list = forms(
            "{ form = \"div R64\", state = \"small\", set = { rax = -1, source = 0x7 } },\n\
             { form = \"jmp next\", bytes = \"EB 00\" },\n\
             { form = \"mov M64, R64\", back = \"mov R64, M64\", integer = true }",
        )
        .unwrap();
        let [div, jump, store] = &list.forms[..] else { panic!("{list:?}") };
        assert_eq!((div.level.as_str(), div.line, div.integer), ("div R64 (small)", 4, false));
        assert_eq!(div.set["rax"].bits(Holds::Integers, 0), u64::MAX);
        assert_eq!(jump.bytes.as_deref(), Some(&[0xEB, 0][..]));
        assert!(store.integer && store.back.is_some() && store.line == 6);
        let copy =
            forms("{ form = \"movsb\", reset_inputs = true, set = { rsi = \"memory+64\" } }")
                .unwrap();
        assert_eq!(copy.forms[0].set["rsi"].bits(Holds::Integers, 4096), 4160);
        assert!(copy.forms[0].reset_inputs);
    }

    #[test]
    fn faults_name_the_line() {
        let faults = [
            (
                "{ form = \"add R64, R64\" },\n{ form = \"add R64, R64\" }",
                ":5: 'add R64, R64': it stands twice",
            ),
            ("{ form = \"add RAX, R64\" }", ":4: 'add RAX, R64': 'RAX' is no operand"),
            ("{ form = \"nop\", bytes = \"9\" }", ":4: 'nop': '9' are no 1 to 60 bytes"),
            ("\n{ form = \"nop\", set = { rsp = 1 } }", ":5: 'nop': 'set' knows no 'rsp'"),
            ("{ form = \"nop\", colour = 1 }", ":4"),
            ("{ form = \"nop\\nnop\" }", ":4: 'nop"),
            ("{ form = \"nop\\u0000\" }", "has a control character"),
            ("{ form = \"nop # none\" }", ":4: 'nop # none': it has a comment"),
            ("{ form = \"nop\", before = \"nop // none\" }", ":4: 'nop': it has a comment"),
            ("{ form = \"nop\", back = \"/* nop */\" }", "it has a comment"),
            ("{ form = \".fill 100000000000\" }", ":4: '.fill 100000000000': it has a directive"),
            ("{ form = \"nop; .fill 9\" }", "it has a directive"),
            ("{ form = \"a:.fill 9\" }", "it has a directive"),
            ("{ form = \"lodsb\", set = { rsi = \"memory+9999\" } }", ":4"),
            ("{ form = \"nop\", set = { source = \"memory\" } }", "'source' holds no place"),
        ];
        for (lines, told) in faults {
            let fault = forms(lines).unwrap_err();
            assert!(fault.starts_with("mine.toml: ") && fault.contains(told), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_in_one_line(text in ".{0,200}") {
            if let Err(fault) = read(&text) {
                prop_assert!(!fault.contains('\n'));
            }
        }

        #[test]
        fn any_form_is_read_or_refused_in_one_line(form in "[A-Za-z0-9 ,+*{}\\[\\]]{0,40}") {
            if let Err(fault) = forms(&format!("{{ form = \"{form}\" }}")) {
                prop_assert!(fault.contains(":4") && !fault.contains('\n'), "{}", fault);
            }
        }

        #[test]
        fn bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 1..16)) {
            let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            prop_assert_eq!(hexadecimal(&text.join(" ")), Ok(bytes));
        }
    }
}
