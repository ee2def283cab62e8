//! Machine code of the forms of an order, from the built-in list or a user's.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lab::data::DataError;
use lab::measure::Context;
use lab::sample::Failure;

use super::artefact;
use super::list::{BUILT_IN, InstructionForm, List};
use super::prepared::{Prepared, prepare_with};
use crate::assembler::Code;

/// Option with a user's list.
pub(crate) const LIST: &str = "instructions";

/// Forms as machine code, each prepared on its first use.
#[derive(Default)]
pub(super) struct Forms {
    known: Option<Result<Known, Failure>>,
    prepared: BTreeMap<usize, Result<Prepared, Failure>>,
}

/// List with the code of its lines.
struct Known {
    list: Cow<'static, List>,
    code: Code,
}

impl Forms {
    /// Finds a form in the list of the context.
    ///
    /// # Errors
    /// Returns `failed` if the list does not contain the form or the form does not assemble, `unsupported` if this CPU
    /// does not support it.
    pub(super) fn find(
        &mut self,
        context: &Context,
        level: &str,
    ) -> Result<(&InstructionForm, &Prepared), Failure> {
        let known = self.known.get_or_insert_with(|| known(context));
        let Known { list, code } = known.as_mut().map_err(|failure| failure.clone())?;
        let missing = || Failure::failed(format!("{}: unknown form '{level}'", list.file));
        let index = list.find(level).ok_or_else(missing)?;
        let form = &list.forms[index];
        let absent = || Failure::failed(format!("'{level}' was not prepared"));
        let prepared = self.prepared.entry(index).or_insert_with(|| {
            let one = prepare_with(&list.file, std::slice::from_ref(form), code).pop();
            one.unwrap_or_else(|| Err(absent()))
        });
        Ok((form, prepared.as_ref().map_err(|failure| failure.clone())?))
    }
}

/// Returns the user's list, assembled here, or the built-in list, which is an artefact.
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
