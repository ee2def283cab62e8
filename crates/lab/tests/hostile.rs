//! Corrupt and hostile journals, records and messages are read or refused in one line, without a panic, a hang or
//! excessive memory. `PROPTEST_CASES` sets the number of cases.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod mutation;
mod record;

use std::fs;
use std::io::{BufReader, Read};
use std::sync::LazyLock;

use hdrhistogram::Histogram;
use lab::histogram::decode_histogram;
use lab::journal::{Journal, RECORD, SAMPLES, open};
use lab::measure::Measurement;
use lab::message::{
    Answer, HostData, MAX_LINE, Order, OrderedPoint, Request, SampleAnswer, receive, send,
};
use lab::point::Point;
use lab::sample::{Clock, Sample, Trial};
use mutation::{bounded, edits, is_one_line, mutated};
use proptest::prelude::*;
use record::record;

/// Returns a sample in which all fields are set.
fn sample() -> Sample {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    (1..2000u64).for_each(|value| histogram.record(value * value).unwrap());
    let measurement = Measurement::default().histogram("time", &histogram).unwrap();
    let clock = Clock {
        tsc_hertz: 2.5e9,
        tsc_step: 26,
        tsc_overhead: 26,
        core_before: 4.4e9,
        core_after: 4.6e9,
        second_before: Some(4.41e9),
        second_after: Some(4.58e9),
        ..Clock::default()
    };
    Sample {
        experiment: "toy/one".into(),
        point: Point::from([("length", "64 KiB"), ("threads", "2")]),
        twin: true,
        round: 3,
        session: 1,
        position: 7,
        host: "here".into(),
        environment: "e".into(),
        attempt: 1,
        at: 1.5e9,
        seconds: 0.25,
        values: [("time".to_string(), 12.5)].into(),
        histograms: measurement.histograms,
        noise: Some(machine::noise::NoiseDelta { minor_faults: 3, ..Default::default() }),
        clock: Some(clock),
        covariates: [("round_trip_ns".to_string(), "107.3".into())].into(),
        parts: [("dut".to_string(), lab::sample::Part::default())].into(),
        trials: vec![Trial { level: 1.0, holds: Some(true), void: None, values: [].into() }],
        void: Some("a stall".into()),
        error: Some(lab::sample::Failure::unavailable("no unit", "buy one")),
    }
}

fn line_of<T: serde::Serialize>(message: &T) -> String {
    let mut line = Vec::new();
    send(&mut line, message).unwrap();
    String::from_utf8(line).unwrap()
}

static ANSWER: LazyLock<String> = LazyLock::new(|| {
    let answered = SampleAnswer { order: 1, role: "dut".into(), sample: sample() };
    line_of(&Answer::Sample(Box::new(answered)))
});

static REQUEST: LazyLock<String> = LazyLock::new(|| {
    let ordered = OrderedPoint {
        position: 1,
        point: sample().point,
        twin: false,
        limit: std::time::Duration::from_secs(10),
    };
    let order = Order {
        id: 1,
        suite: "toy".into(),
        experiment: "one".into(),
        method: "one".into(),
        round: 3,
        points: vec![ordered],
        budget: std::time::Duration::from_millis(2),
        role: String::new(),
        attempt: 1,
        seed: 5,
        options: [("allow-code".to_string(), "yes".to_string())].into(),
        host: HostData::default(),
        inside: false,
    };
    line_of(&Request::Order(Box::new(order)))
});

static JOURNAL: LazyLock<[String; 2]> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), record).unwrap();
    for round in 0..4 {
        journal.append(&Sample { round, ..sample() }).unwrap();
    }
    [RECORD, SAMPLES].map(|name| fs::read_to_string(folder.path().join(name)).unwrap())
});

/// Reads a folder with this record and these samples, as a reader and as a resuming lab.
fn read_folder(record_text: &[u8], samples: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(RECORD), record_text).unwrap();
    fs::write(folder.path().join(SAMPLES), samples).unwrap();
    bounded(|| match open(folder.path()) {
        Ok(run) => {
            for experiment in run.record.experiments.keys() {
                let _ = lab::summary::summarise(&run, experiment, "time", lab::summary::Unit::Own);
            }
            let _ = lab::summary::summarise(&run, "toy/one", "time", lab::summary::Unit::Own);
        }
        Err(why) => is_one_line(&why),
    });
    if let Err(why) = bounded(|| Journal::open(folder.path(), record)) {
        is_one_line(&why);
    }
}

fn receive_all<T: for<'de> serde::Deserialize<'de>>(bytes: &[u8]) {
    let mut input = BufReader::new(bytes);
    bounded(|| {
        loop {
            match receive::<T>(&mut input) {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(why) => return is_one_line(&why),
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edited_journals_are_read_or_refused(record: bool, edits in edits()) {
        let [whole, samples] = &*JOURNAL;
        if record {
            read_folder(mutated(whole, &edits).as_bytes(), samples.as_bytes());
        } else {
            read_folder(whole.as_bytes(), mutated(samples, &edits).as_bytes());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let [whole, samples] = &*JOURNAL;
        read_folder(&bytes, samples.as_bytes());
        read_folder(whole.as_bytes(), &bytes);
        receive_all::<Answer>(&bytes);
        receive_all::<Request>(&bytes);
    }

    #[test]
    fn edited_answers_are_read_or_refused(edits in edits()) {
        receive_all::<Answer>(mutated(&ANSWER, &edits).as_bytes());
    }

    #[test]
    fn edited_requests_are_read_or_refused(edits in edits()) {
        receive_all::<Request>(mutated(&REQUEST, &edits).as_bytes());
    }

    #[test]
    fn edited_histograms_are_decoded_or_refused(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..12),
        keep: bool,
    ) {
        use base64::Engine as _;
        let base64 = base64::engine::general_purpose::STANDARD_NO_PAD;
        let mut whole = base64.decode(&sample().histograms["time"]).unwrap();
        let at = at.index(whole.len());
        let end = (at + bytes.len()).min(whole.len());
        whole.splice(at..if keep { end } else { whole.len() }, bytes);
        if let Err(why) = bounded(|| decode_histogram(&base64.encode(&whole))) {
            is_one_line(&why);
        }
    }

    #[test]
    fn any_text_is_a_histogram_or_refused(text in "[A-Za-z0-9+/]{0,200}|.{0,40}") {
        if let Err(why) = bounded(|| decode_histogram(&text)) {
            is_one_line(&why);
        }
    }
}

#[test]
fn valid_documents_are_read() {
    receive_all::<Answer>(ANSWER.as_bytes());
    assert!(receive::<Answer>(&mut ANSWER.as_bytes()).unwrap().is_some());
    assert!(receive::<Request>(&mut REQUEST.as_bytes()).unwrap().is_some());
    assert!(decode_histogram(&sample().histograms["time"]).is_ok());
}

/// Inputs that make the library's decoder allocate gigabytes or panic.
#[test]
fn a_histogram_that_breaks_the_decoder_is_refused() {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD_NO_PAD;
    let whole = base64.decode(&sample().histograms["time"]).unwrap();
    let with = |stated: u32, counts: &[u8]| {
        let mut header = whole[..40].to_vec();
        header[4..8].copy_from_slice(&stated.to_be_bytes());
        base64.encode([&header, counts].concat())
    };
    let max = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let [negated, added] = [[0xff; 9].to_vec(), max.repeat(3)];
    for text in [with(u32::MAX, &[]), with(9, &negated), with(27, &added)] {
        is_one_line(&bounded(|| decode_histogram(&text)).unwrap_err());
        let [whole, samples] = &*JOURNAL;
        read_folder(
            whole.as_bytes(),
            samples.replace(&sample().histograms["time"], &text).as_bytes(),
        );
    }
}

#[test]
fn an_endless_line_is_refused_in_bounded_memory() {
    let mut endless = BufReader::new(std::io::repeat(b'x'));
    let why = bounded(|| receive::<Answer>(&mut endless)).unwrap_err();
    assert!(why.contains(&format!("a line of over {MAX_LINE} bytes: 'xxx")), "{why}");
    let mut deep =
        BufReader::new(std::io::repeat(b'[').take(MAX_LINE as u64 - 1).chain(&b"\n"[..]));
    is_one_line(&bounded(|| receive::<Answer>(&mut deep)).unwrap_err());
    // The maximum length.
    let mut longest = vec![b' '; MAX_LINE - 1];
    longest[..8].copy_from_slice(b"\"ready\" ");
    longest.push(b'\n');
    assert_eq!(receive::<Answer>(&mut longest.as_slice()), Ok(Some(Answer::Ready)));
}

#[test]
fn a_message_that_is_too_long_is_not_sent() {
    let artefact = "x".repeat(MAX_LINE);
    let why = send(&mut Vec::new(), &Answer::Preparing { artefact }).unwrap_err();
    assert!(why.to_string().contains("over the limit"), "{why}");
}
