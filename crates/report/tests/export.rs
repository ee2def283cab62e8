//! Exports read back: every sample with its exact values.

#![allow(clippy::unwrap_used)]

mod synthetic;

use std::collections::BTreeMap;
use std::fs::File;

use lab::guest::GuestsRecord;
use lab::journal::Run;
use lab::sample::Sample;
use machine::cpu::CpuClock;
use machine::file::Output;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use report::export::{ExportError, Format, to_file, write};

fn all(_: &Sample) -> bool {
    true
}

fn runs() -> Vec<Run> {
    let mut other = synthetic::latencies(2);
    other.record.name = "testbed-quick-2".into();
    let part = lab::sample::Part { host: "far".into(), ..Default::default() };
    other.samples[0].parts.insert("generator".into(), part);
    vec![synthetic::run(3), other]
}

/// Returns the rows of the CSV by column, without empty texts.
fn csv_rows(runs: &[Run]) -> Vec<BTreeMap<String, String>> {
    let mut bytes = Vec::new();
    write(runs, &all, Format::Csv, &mut bytes).unwrap();
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let header = reader.headers().unwrap().clone();
    let row = |record: csv::StringRecord| {
        let cells = header.iter().zip(record.iter()).filter(|(_, text)| !text.is_empty());
        cells.map(|(name, text)| (name.to_string(), text.to_string())).collect()
    };
    reader.records().map(|record| row(record.unwrap())).collect()
}

#[test]
fn csv_has_one_row_per_sample() {
    let runs = runs();
    let rows = csv_rows(&runs);
    let samples: Vec<&Sample> = runs.iter().flat_map(|run| &run.samples).collect();
    assert_eq!(rows.len(), samples.len());
    for (row, sample) in rows.iter().zip(&samples) {
        assert_eq!(row["experiment"], sample.experiment);
        assert_eq!(row["round"], sample.round.to_string());
        for (factor, level) in sample.point.levels() {
            assert_eq!(row[factor], level.as_str());
        }
        for metric in ["throughput", "latency"] {
            let read = row.get(metric).map(|text| text.parse::<f64>().unwrap());
            assert_eq!(read, sample.values.get(metric).copied());
        }
        assert_eq!(row.get("void"), sample.void.as_ref());
        assert_eq!(
            row.get("error").map(String::as_str),
            sample.error.as_ref().map(|e| e.kind.name())
        );
        assert_eq!(row.get("error.remedy"), sample.error.as_ref().and_then(|e| e.remedy.as_ref()));
        let core = row.get("clock.core_after").map(|text| text.parse::<f64>().unwrap());
        assert_eq!(core, sample.clock.map(|clock| clock.core_after));
        let second = row.get("clock.second_before");
        let second = second.map(|text| text.parse::<f64>().unwrap());
        assert_eq!(second, sample.clock.and_then(|clock| clock.second_before));
        assert_eq!(row.get("histogram.latency"), sample.histograms.get("latency"));
    }
    let length = rows.iter().find(|row| row.get("length").is_some_and(|l| l == "64 KiB")).unwrap();
    assert_eq!(length["length.bytes"], "65536.0");
    assert!(rows.iter().any(|row| row.contains_key("parts")));
}

#[test]
fn parquet_has_the_values_of_csv_with_types() {
    let runs = runs();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.parquet");
    to_file(&runs, &all, Format::Parquet, &path, Output::create).unwrap();
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let text = |field: &Field| match field {
        Field::Null => None,
        Field::Str(text) => Some(text.clone()),
        Field::Double(number) => Some(format!("{number:?}")),
        Field::Long(number) => Some(number.to_string()),
        Field::Bool(truth) => Some(truth.to_string()),
        other => panic!("unexpected type of {other:?}"),
    };
    let row = |row: parquet::record::Row| -> BTreeMap<String, String> {
        let columns = row.get_column_iter();
        columns.filter_map(|(name, field)| Some((name.clone(), text(field)?))).collect()
    };
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|r| row(r.unwrap())).collect();
    assert_eq!(rows, csv_rows(&runs));
    let schema = reader.metadata().file_metadata().schema_descr();
    let physical = |name: &str| {
        let column = schema.columns().iter().find(|column| column.name() == name).unwrap();
        column.physical_type().to_string()
    };
    assert_eq!(physical("throughput"), "DOUBLE");
    assert_eq!(physical("threads"), "INT64");
    assert_eq!(physical("length"), "BYTE_ARRAY");
    assert_eq!(physical("twin"), "BOOLEAN");
    assert!(reader.metadata().row_group(0).column(0).compression().to_string().contains("SNAPPY"));
}

#[test]
fn parquet_is_written_in_groups() {
    let mut run = synthetic::run(1);
    let sample = run.samples[0].clone();
    run.samples = (0..20_000).map(|round| Sample { round, ..sample.clone() }).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.parquet");
    to_file(&[run], &all, Format::Parquet, &path, Output::create).unwrap();
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 3);
    assert_eq!(reader.metadata().file_metadata().num_rows(), 20_000);
}

#[test]
fn json_is_the_journal() {
    let runs = runs();
    let mut bytes = Vec::new();
    write(&runs, &all, Format::Json, &mut bytes).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    for (run, read) in runs.iter().zip(json["runs"].as_array().unwrap()) {
        let samples: Vec<Sample> = serde_json::from_value(read["samples"].clone()).unwrap();
        assert!(samples == run.samples, "the samples differ");
        let record: lab::journal::RunRecord =
            serde_json::from_value(read["record"].clone()).unwrap();
        assert!(record == run.record, "the records differ");
    }
}

#[test]
fn equal_column_names_are_numbered() {
    let mut run = synthetic::latencies(1);
    for sample in &mut run.samples {
        sample.point = sample.point.with("round", "7");
        sample.values.insert("distance".into(), 2.0);
    }
    let rows = csv_rows(&[run]);
    assert_eq!(rows[0]["round"], "7");
    assert_eq!(rows[0]["round.2"], "0");
    assert_eq!(rows[0]["distance.2"], "2.0");
}

#[test]
fn only_selected_samples_are_written() {
    let filter = |sample: &Sample| sample.experiment == "copy/latency";
    let mut bytes = Vec::new();
    write(&runs(), &filter, Format::Csv, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().count(), 1 + 4);
    assert!(!text.contains("function"));
}

#[test]
fn errors_are_one_line_and_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.csv");
    let none = to_file(&runs(), &|_| false, Format::Csv, &path, Output::create).unwrap_err();
    assert!(matches!(none, ExportError::Nothing), "{none}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = folder.path().join("absent/samples.csv");
    let line =
        to_file(&runs(), &all, Format::Csv, &nowhere, Output::create).unwrap_err().to_string();
    assert!(line.contains("absent/samples.csv") && !line.contains('\n'), "{line}");
}

#[test]
fn a_full_disk_is_reported() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for format in [Format::Csv, Format::Json, Format::Parquet] {
        let error = write(&runs(), &all, format, &mut Full).unwrap_err();
        assert!(error.to_string().contains("no storage space"), "{format:?}: {error}");
    }
}

#[test]
fn a_row_states_the_guest_and_its_clock() {
    let guests = |accelerator: &str, clock| GuestsRecord {
        name: "mine".into(),
        declaration: String::new(),
        accelerator: accelerator.into(),
        clock,
    };
    for (guests, clock) in [
        (None, None),
        (Some(guests("kvm", CpuClock::Real)), Some("real")),
        (Some(guests("tcg", CpuClock::Untimed)), Some("none")),
        (Some(guests("tcg", CpuClock::Planted)), Some("planted clock")),
    ] {
        let mut runs = runs();
        runs[0].record.guests = guests.clone();
        let rows = csv_rows(&runs);
        assert_eq!(rows[0].get("guest.clock").map(String::as_str), clock);
        assert_eq!(rows[0].get("guest"), guests.as_ref().map(|one| &one.name));
        assert_eq!(rows[0].get("guest.accelerator"), guests.as_ref().map(|one| &one.accelerator));
        assert_eq!(rows.last().unwrap().get("guest"), None);
    }
}
