use proptest::prelude::*;

use super::*;

const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

const FAULT: &str = "name: page_fault_user
ID: 190
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long address;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned long ip;\toffset:16;\tsize:8;\tsigned:0;

print fmt: \"address=%ps\", (void *)REC->address
";

const CALL: &str = "name: sys_enter
ID: 443
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;
\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;
";

fn header() -> Pages {
    Pages::parse(HEADER).unwrap()
}

/// An item of a page.
#[derive(Debug, Clone)]
enum Held {
    Short(u32, Vec<u32>),
    Long(u32, Vec<u32>),
    Extend(u64),
    Stamp(u64),
}

fn held() -> impl Strategy<Value = Held> {
    let delta = 0..1u32 << DELTA_BITS;
    let words = |most| proptest::collection::vec(any::<u32>(), 1..most);
    prop_oneof![
        (delta.clone(), words(29)).prop_map(|(delta, words)| Held::Short(delta, words)),
        (delta, words(60)).prop_map(|(delta, words)| Held::Long(delta, words)),
        (0..1u64 << STAMP_BITS).prop_map(Held::Extend),
        (0..1u64 << STAMP_BITS).prop_map(Held::Stamp),
    ]
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().copied().flat_map(u32::to_le_bytes).collect()
}

/// Writes a page like the kernel.
fn written(start: u64, all: &[Held]) -> Vec<u8> {
    let mut data = Vec::new();
    let long =
        |kind: u32, time: u64| bytes(&[kind | (time as u32) << 5, (time >> DELTA_BITS) as u32]);
    for held in all {
        match held {
            Held::Short(delta, words) => {
                data.extend(bytes(&[words.len() as u32 | delta << 5]));
                data.extend(bytes(words));
            }
            Held::Long(delta, words) => {
                data.extend(bytes(&[delta << 5, words.len() as u32 * 4 + 4]));
                data.extend(bytes(words));
            }
            Held::Extend(time) => data.extend(long(TIME_EXTEND, *time)),
            Held::Stamp(time) => data.extend(long(TIME_STAMP, *time)),
        }
    }
    let mut page = [start.to_le_bytes(), (data.len() as u64).to_le_bytes()].concat();
    page.extend(data);
    // The bytes after the last record are undefined.
    page.extend([0xa5; 64]);
    page
}

proptest! {
    #[test]
    fn written_records_are_parsed_exactly(
        start in any::<u64>(),
        all in proptest::collection::vec(held(), 0..40),
    ) {
        let mut expected = Vec::new();
        let mut now = start;
        for held in &all {
            match held {
                Held::Short(delta, words) | Held::Long(delta, words) => {
                    now = now.wrapping_add(u64::from(*delta));
                    expected.push((now, bytes(words)));
                }
                Held::Extend(time) => now = now.wrapping_add(*time),
                Held::Stamp(time) => now = absolute(*time, start),
            }
        }
        let page = written(start, &all);
        let read: Result<Vec<_>, _> = header().records(&page).unwrap().collect();
        let read: Vec<_> =
            read.unwrap().into_iter().map(|(ticks, bytes)| (ticks, bytes.to_vec())).collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn a_truncated_page_is_an_error_and_never_another_record(
        all in proptest::collection::vec(held(), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = written(0, &all);
        let mut page = whole.clone();
        page.truncate(cut.index(whole.len() - 64));
        prop_assert!(matches!(header().records(&page), Err(TraceError::Page)));
        // The same with a smaller byte count.
        let held = cut.index(whole.len() - 80) as u64;
        page = whole.clone();
        page[8..16].copy_from_slice(&held.to_le_bytes());
        let all: Vec<_> = header().records(&whole).unwrap().map(Result::unwrap).collect();
        let some: Vec<_> = header().records(&page).unwrap().collect();
        for (read, expected) in some.iter().zip(&all) {
            prop_assert!(*read == Ok(*expected) || *read == Err(TraceError::Record));
        }
    }

    #[test]
    fn no_page_and_no_format_panics(
        page in proptest::collection::vec(any::<u8>(), 0..300),
        format in "(\t?field:[ -~\t]{0,40}\n|ID: [0-9]{0,20}\n|[ -~\n]{0,30}){0,6}",
    ) {
        let _ = Pages::parse(&format);
        let layout = Layout::parse(&format, Event::Syscall, 1);
        for layout in [Layout::parse(FAULT, Event::PageFault, 1).unwrap()].into_iter().chain(layout) {
            layout.decode((0, &page));
            if let Ok(records) = header().records(&page) {
                // Each record consumes at least its first word.
                prop_assert!(records.count() <= page.len() / 4 + 1);
            }
        }
    }
}

fn record(id: u16, thread: i32, fields: &[u64]) -> Vec<u8> {
    let head = [&id.to_le_bytes()[..], &[0, 0], &thread.to_le_bytes()].concat();
    [head, fields.iter().copied().flat_map(u64::to_le_bytes).collect()].concat()
}

#[test]
fn a_fault_is_identified_by_event_and_thread() {
    let layout = Layout::parse(FAULT, Event::PageFault, 7).unwrap();
    let decoded = |record: &[u8]| layout.decode((5, record));
    assert_eq!(decoded(&record(190, 7, &[0x7000, 1])), Some(TraceEvent { ticks: 5, mark: 0x7000 }));
    assert_eq!(decoded(&record(190, 8, &[0x7000, 1])), None);
    assert_eq!(decoded(&record(191, 7, &[0x7000, 1])), None);
    assert_eq!(decoded(&record(190, 7, &[])), None, "truncated");
}

#[test]
fn a_call_is_identified_by_its_number_and_marked_by_its_first_argument() {
    let layout = Layout::parse(CALL, Event::Syscall, 7).unwrap();
    let expected = crate::trace::stamps::CALL;
    let decoded = |call: u64| layout.decode((5, &record(443, 7, &[call, 42, 1, 2, 3, 4, 5])));
    assert_eq!(decoded(expected), Some(TraceEvent { ticks: 5, mark: 42 }));
    assert_eq!(decoded(expected + 1), None);
}

#[test]
fn lost_and_discarded_records_are_errors() {
    let mut page = written(1, &[Held::Short(1, vec![1])]);
    page[11] |= 0x80;
    assert!(matches!(header().records(&page), Err(TraceError::Lost)));
    let padding = |delta: u32, length: u32| {
        let mut page = written(1, &[Held::Short(3, vec![1]), Held::Short(4, vec![length, 2, 3])]);
        page[24..28].copy_from_slice(&(PADDING | delta << 5).to_le_bytes());
        header().records(&page).unwrap().collect::<Result<Vec<_>, _>>().map(|all| all.len())
    };
    assert_eq!([padding(0, 12), padding(1, 12)], [Ok(1); 2], "the unused end of the page");
    assert_eq!(padding(9, 8), Err(TraceError::Discarded));
    assert_eq!(padding(9, 13), Err(TraceError::Record));
}

#[test]
fn a_missing_field_is_reported_by_name() {
    let why = Layout::parse(CALL, Event::PageFault, 7).unwrap_err();
    assert!(why.why.contains("'address'"), "{why}");
    assert!(Pages::parse("field: u64 commit; offset:x; size:8;").is_err());
}
