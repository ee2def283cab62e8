//! Versions and JSON Schemas of JSON output. The schemas are generated from the types that are written.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};

/// Name of the field that contains the version.
const VERSION_FIELD: &str = "schema_version";
/// Start of the identifiers of schemas; name and version follow.
const ID: &str = "urn:tollgate:schema";

/// An object that a command writes as JSON.
pub trait JsonOutput: Serialize + JsonSchema {
    /// Name of its schema on the command line.
    const NAME: &'static str;
    /// Command that writes it, e.g. `tollgate show --json`.
    const WRITTEN_BY: &'static str;
    /// Version of the schema. Any change of the schema but of its descriptions raises it.
    const VERSION: u64;
}

/// Schema of an output.
#[derive(Debug, Clone, Copy)]
pub struct OutputSchema {
    /// Name on the command line.
    pub name: &'static str,
    /// Command that writes the output.
    pub written_by: &'static str,
    /// Version.
    pub version: u64,
    schema: fn() -> Schema,
}

impl OutputSchema {
    /// Describes an output, which has the version in its field `schema_version`.
    pub const fn of<T: JsonOutput>() -> Self {
        Self {
            name: T::NAME,
            written_by: T::WRITTEN_BY,
            version: T::VERSION,
            schema: versioned_schema_of::<T>,
        }
    }

    /// Describes a file without that field, whose version is elsewhere.
    pub const fn of_file<T: JsonSchema>(
        name: &'static str,
        written_by: &'static str,
        version: u64,
    ) -> Self {
        Self { name, written_by, version, schema: schema_of::<T> }
    }

    /// Returns the JSON Schema, of draft 2020-12.
    pub fn schema(&self) -> Value {
        let mut schema = (self.schema)();
        let Self { name, written_by, version, .. } = self;
        schema.insert("$id".into(), format!("{ID}:{name}:{version}").into());
        schema.insert("title".into(), (*written_by).into());
        schema.to_value()
    }
}

/// An output with its version.
#[derive(Debug, Serialize)]
pub struct Versioned<'a, T> {
    schema_version: u64,
    #[serde(flatten)]
    output: &'a T,
}

impl<'a, T: JsonOutput> Versioned<'a, T> {
    /// Adds the version to an output.
    pub const fn of(output: &'a T) -> Self {
        Self { schema_version: T::VERSION, output }
    }
}

/// Returns an output as JSON, with its version.
///
/// # Errors
/// Returns an error if it cannot be JSON.
pub fn to_value<T: JsonOutput>(output: &T) -> serde_json::Result<Value> {
    serde_json::to_value(Versioned::of(output))
}

/// Generates the schema of what a type writes.
fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings
        .with_transform(RecursiveTransform(close))
        .with_transform(RecursiveTransform(describe_plainly));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Generates the schema of an output with its version.
fn versioned_schema_of<T: JsonOutput>() -> Schema {
    let mut schema = schema_of::<T>();
    let about = "Version of this schema; any other has another structure.";
    let field = json!({ "description": about, "const": T::VERSION });
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.insert(VERSION_FIELD.into(), field);
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.insert(0, VERSION_FIELD.into());
    }
    schema
}

/// Refuses fields that an object's schema does not name.
fn close(schema: &mut Schema) {
    let is_open = |name: &str| schema.get(name).is_none();
    if schema.get("properties").is_some()
        && is_open("additionalProperties")
        && is_open("unevaluatedProperties")
    {
        schema.insert("additionalProperties".into(), false.into());
    }
}

/// Replaces the links of a description, which lead into the program's documentation, by their texts.
fn describe_plainly(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = without_links(text);
    }
}

/// Replaces ``[`Name`](path)`` and ``[`Name`]`` by `Name`, and line feeds by spaces.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain += before;
        let Some((name, after)) = link.split_once(']') else {
            rest = &rest[before.len()..];
            break;
        };
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        plain += match target.is_some() || name.starts_with('`') {
            true => name.trim_matches('`'),
            false => &rest[before.len()..rest.len() - after.len()],
        };
        rest = target.map_or(after, |(_, after)| after);
    }
    (plain + rest).replace('\n', " ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// A toy, see [`to_value`].
    #[derive(Serialize, JsonSchema)]
    struct Toy {
        /// Inner [toy](Inner) of
        /// two lines.
        inner: Inner,
        absent: Option<u32>,
    }

    #[derive(Serialize, JsonSchema)]
    struct Inner {
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u32>,
    }

    impl JsonOutput for Toy {
        const NAME: &'static str = "toy";
        const WRITTEN_BY: &'static str = "a toy";
        const VERSION: u64 = 7;
    }

    #[test]
    fn a_schema_is_closed_and_requires_what_is_written() {
        let schema = OutputSchema::of::<Toy>().schema();
        assert_eq!(schema["$id"], "urn:tollgate:schema:toy:7");
        assert_eq!(schema["properties"][VERSION_FIELD]["const"], 7);
        assert_eq!(schema["required"], json!([VERSION_FIELD, "inner", "absent"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["$defs"]["Inner"]["additionalProperties"], false);
        assert_eq!(schema["$defs"]["Inner"].get("required"), None);
        assert_eq!(schema["description"], "A toy, see to_value.");
        assert_eq!(schema["properties"]["inner"]["description"], "Inner toy of two lines.");
        let toy = Toy { inner: Inner { left_out: None }, absent: None };
        let value = to_value(&toy).unwrap();
        assert_eq!(value, json!({ VERSION_FIELD: 7, "inner": {}, "absent": null }));
    }

    #[test]
    fn only_links_lose_their_brackets() {
        assert_eq!(without_links("from [0, 1) to"), "from [0, 1) to");
        assert_eq!(without_links("from [0, 1] to"), "from [0, 1] to");
        assert_eq!(without_links("[`a`](b), [`c`] and (d)"), "a, c and (d)");
    }
}
