//! Declarations of guests in the documentation: the example is one, and the table has every field with its description.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::Bench;
use crate::page::{self, Page};

/// Name of the example's file.
const EXAMPLE: &str = "./mine.toml";

fn manual() -> Page {
    page::all().into_iter().find(|page| page.path == Path::new("docs/virtual.md")).unwrap()
}

/// Writes the example to the folder of the bench.
fn write_example(bench: &Bench) {
    let blocks = manual().blocks().into_iter();
    let mut examples = blocks.filter(|block| block.text.starts_with("# mine.toml\n"));
    fs::write(bench.path().join(EXAMPLE), examples.next().unwrap().text).unwrap();
    assert!(examples.next().is_none(), "two examples of one name");
}

#[test]
fn the_example_of_a_guest_is_a_declaration_with_most_fields() {
    let bench = Bench::new();
    write_example(&bench);
    let output = bench.json(&["guest", EXAMPLE, "--json"]);
    assert_eq!(output["guests"][0]["name"], "mine");
    let declaration = &output["guests"][0]["declaration"];
    let is_empty = |field: &Value| match field {
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => true,
    };
    for field in ["parameters", "files", "arguments", "modules", "prepare", "allow", "set", "host"]
    {
        assert!(!is_empty(&declaration[field]), "{field}: {declaration}");
    }
}

/// Returns the rows of a definition's fields in the table of the documentation.
fn rows(schema: &Value, definition: &str, prefix: &str) -> Vec<String> {
    let fields = schema["$defs"][definition]["properties"].as_object().unwrap();
    let row = |(name, field): (&String, &Value)| {
        let can_be_null = field["anyOf"].is_array() || field["type"].is_array();
        let default = match &field["default"] {
            Value::Null if can_be_null => "none".to_owned(),
            Value::Null => "required".to_owned(),
            Value::Array(all) if all.is_empty() => "none".to_owned(),
            Value::Object(all) if all.is_empty() => "none".to_owned(),
            Value::String(text) if text.is_empty() => "none".to_owned(),
            value => format!("`{value}`"),
        };
        let description = field["description"].as_str().unwrap().replace('|', "\\|");
        format!("| `{prefix}{name}` | {default} | {} |", description.replace('\n', " "))
    };
    fields.iter().map(row).collect()
}

#[test]
fn the_table_of_a_declaration_has_each_field() {
    let schema: Value = serde_json::from_str(&Bench::new().ok(&["schema", "guest"])).unwrap();
    let definitions =
        [("Declaration", ""), ("BuiltKernel", "kernel."), ("Pool", "pool."), ("Host", "host.")];
    let expected = definitions.map(|(name, prefix)| rows(&schema, name, prefix)).concat();
    let text = manual().text;
    let start = text.find("| field | default | meaning |").unwrap();
    let table: Vec<_> =
        text[start..].lines().take_while(|line| line.starts_with('|')).skip(2).collect();
    let missing: Vec<_> = expected.iter().filter(|row| !table.contains(&row.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/virtual.md:\n{missing:#?}");
    assert_eq!(table.len(), expected.len(), "a row without a field: {table:#?}");
}

#[test]
#[ignore = "boots a guest twice"]
fn long_the_guest_of_the_example_has_its_devices() {
    let bench = Bench::new();
    write_example(&bench);
    let words = ["doctor", "--guest", EXAMPLE, "--json"];
    let output = bench.command_with_user_cache(&words).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("/dev/dax0.0"), "{text}");
    let words = ["run", "copy/two-host-delivery", "--guest", EXAMPLE, "--where", "memory=pci-bar"];
    let how = ["--rounds", "1", "--quiet"];
    let output = bench.command_with_user_cache(&[&words[..], &how].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let samples = bench.journal().samples.into_iter();
    let samples: Vec<_> = samples.filter(|it| it.experiment == "copy/two-host-delivery").collect();
    assert!(!samples.is_empty());
    for sample in samples {
        assert_eq!(sample.error, None, "{}", sample.point);
        assert_eq!(sample.parts.len(), 2, "{sample:?}");
    }
}
