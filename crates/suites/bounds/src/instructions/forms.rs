//! The forms that an order asks for as machine code, of the suite's list or a person's own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lab::data::DataError;
use lab::measure::Context;
use lab::sample::Failure;

use super::artefact;
use super::list::{BUILT_IN, InstructionForm, List};
use super::prepared::{Prepared, prepare_with};
use crate::assembler::Code;

/// The option that holds a person's own list.
pub(crate) const LIST: &str = "instructions";

/// The forms as machine code, each once it is asked for.
#[derive(Default)]
pub(super) struct Forms {
    known: Option<Result<Known, Failure>>,
    prepared: BTreeMap<usize, Result<Prepared, Failure>>,
}

/// A list with the code of its lines.
struct Known {
    list: Cow<'static, List>,
    code: Code,
}

impl Forms {
    /// A form of the list that the context names.
    ///
    /// # Errors
    /// Where the list has none of this name, it does not assemble or this CPU lacks it.
    pub(super) fn find(
        &mut self,
        context: &Context,
        level: &str,
    ) -> Result<(&InstructionForm, &Prepared), Failure> {
        let known = self.known.get_or_insert_with(|| known(context));
        let Known { list, code } = known.as_mut().map_err(|failure| failure.clone())?;
        let missing = || Failure::failed(format!("{} has no form '{level}'", list.file));
        let at = list.find(level).ok_or_else(missing)?;
        let form = &list.forms[at];
        let absent = || Failure::failed(format!("'{level}' was not prepared"));
        let prepared = self.prepared.entry(at).or_insert_with(|| {
            let one = prepare_with(&list.file, std::slice::from_ref(form), code).pop();
            one.unwrap_or_else(|| Err(absent()))
        });
        Ok((form, prepared.as_ref().map_err(|failure| failure.clone())?))
    }
}

/// A person's own list, assembled here; or the suite's, which is assembled once a host.
fn known(context: &Context) -> Result<Known, Failure> {
    let failed = |fault: &DataError| Failure::failed(fault.to_string());
    let Some(text) = context.options.get(LIST) else {
        let list = Cow::Borrowed(BUILT_IN.as_ref().map_err(failed)?);
        return Ok(Known { list, code: artefact::read(context.artefact(artefact::NAME)?)? });
    };
    let (file, text) = text.split_once('\n').unwrap_or((LIST, text));
    let list = List::read(file, text).map_err(|fault| failed(&fault))?;
    let mut code = Code::new();
    prepare_with(&list.file, &list.forms, &mut code);
    Ok(Known { list: Cow::Owned(list), code })
}
