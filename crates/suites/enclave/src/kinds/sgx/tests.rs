//! Enclaves of every image on an emulated CPU, in a separate process.

use std::process::Command;

use super::super::Enclave;

/// Runs the tests below in a separate process, where the emulation handles all faults.
#[test]
fn enclaves_run_on_an_emulated_processor() {
    // The emulation sets FS and blocks system calls like that kind.
    if let Err(why) = super::super::runs(super::super::EnclaveKind::Simulate) {
        return machine::untested::note("enclaves on an emulated CPU", &why);
    }
    let program = std::env::current_exe().unwrap();
    let words = ["kinds::sgx::tests::emulated::", "--ignored", "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(words).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stdout}\n{why}", output.status);
    assert!(stdout.contains("8 passed; 0 failed"), "{stdout}");
}

#[path = "../../../tests/boundary/built.rs"]
mod built;
#[path = "../../../tests/boundary/images_contract.rs"]
mod images_contract;

mod emulated {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use enclave_interface::{Ecall, Ocall};
    use rsa::PrivateKey;

    use super::super::super::{Enclave, initialise};
    use super::super::emulation::{self, Emulated};
    use super::super::entry::{Entry, ExitReason};
    use super::super::key;
    use super::super::pages::Pages;
    use super::super::processor::Processor;
    use super::super::{InitializedEnclave, Sgx};
    use super::built::{FIVE, LET_GO, STAY, SUM};
    use super::images_contract;
    use crate::conf::Conf;
    use crate::elf::Elf;
    use crate::error::{EcallError, FaultLocation};
    use crate::images::{self, Image};

    const PROCESSOR: Processor =
        Processor { xfrm: 7, frame_pages: 1, largest: 1 << 36, epc: 1 << 32 };

    fn key() -> &'static PrivateKey {
        static KEY: OnceLock<PrivateKey> = OnceLock::new();
        KEY.get_or_init(|| key::generate().unwrap())
    }

    fn pages(image: &Image, conf: &Conf, processor: &Processor) -> Pages {
        let elf = Elf::parse(image.bytes).unwrap();
        Pages::new(&elf, conf, processor, key()).unwrap()
    }

    fn start(image: &Image, conf: &Conf) -> Sgx<Emulated> {
        let pages = pages(image, conf, &PROCESSOR);
        Sgx::start(&pages, Emulated::new(), emulation::vdso(), conf).unwrap()
    }

    fn load(image: &Image, conf: &Conf) -> Box<dyn Enclave> {
        initialise(start(image, conf)).unwrap()
    }

    fn small() -> &'static Image {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        IMAGE.get_or_init(|| Image {
            allocator: "of the test",
            bytes: super::built::bytes(),
            wasm: None,
        })
    }

    const CONF: Conf = Conf { heap_pages: 16, stack_pages: 16, tcs: 4, debug: true };

    fn call(enclave: &dyn Enclave, call: Ecall, words: &[u64]) -> Result<u64, EcallError> {
        let mut five = [0; 5];
        five[..words.len()].copy_from_slice(words);
        enclave.ecall(call, five)
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn every_image_keeps_its_contract() {
        for image in images::all() {
            let conf = Conf { heap_pages: 16_384, ..CONF };
            images_contract::check(image.allocator, &*load(image, &conf), &[5000]);
        }
    }

    /// Returns the error of a misbehaving fresh enclave, and checks that no later ECALL enters it.
    fn misbehave(how: u64, address: impl FnOnce(&dyn Enclave) -> u64) -> (EcallError, u64) {
        let enclave = load(small(), &CONF);
        let address = address(&*enclave);
        let why = call(&*enclave, Ecall::misbehave, &[how, address]).unwrap_err();
        assert_eq!(call(&*enclave, FIVE, &[1]), Err(EcallError::Aborting), "after {why}");
        let system_call = matches!(why, EcallError::SystemCall { .. });
        assert_eq!(enclave.blocked(), u64::from(system_call), "{why}");
        if let EcallError::Fault { at, .. } = why {
            // The wild jump of number 5 has already been taken.
            assert!(how == 5 || enclave.heap().start as u64 > at && at != 0, "{at:#x}");
        }
        (why, address)
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn a_fault_is_a_failed_ecall_with_its_cause() {
        emulation::refuse_system_calls();
        let fault = |how, address: &dyn Fn(&dyn Enclave) -> u64| match misbehave(how, address) {
            (EcallError::Fault { signal, address: touched, place, .. }, address) => {
                // For an address inside, the CPU reports only the page.
                (signal, touched == address & !0xfff || touched == address, place)
            }
            (other, _) => panic!("{other}"),
        };
        let (why, _) = misbehave(0, |_| 0);
        assert!(matches!(why, EcallError::SystemCall { number: 39, .. }), "{why}");
        let overrun = fault(1, &|_| 0);
        assert_eq!((overrun.0, overrun.2), (libc::SIGSEGV, FaultLocation::Guard));
        let segv = |place| (libc::SIGSEGV, true, place);
        let heap = |enclave: &dyn Enclave| enclave.heap().start as u64;
        assert_eq!(fault(2, &|_| 0x18), segv(FaultLocation::Outside));
        assert_eq!(
            fault(2, &|enclave| enclave.heap().end as u64 + 0x18),
            segv(FaultLocation::Guard)
        );
        assert_eq!(fault(3, &|_| 0).0, libc::SIGILL);
        assert_eq!(fault(4, &|_| 0).0, libc::SIGFPE);
        assert_eq!(fault(5, &|_| 0), segv(FaultLocation::Outside));
        assert_eq!(fault(5, &heap), segv(FaultLocation::Inside));
        assert_eq!(fault(6, &|_| 0).2, FaultLocation::Inside);
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn each_tcs_has_its_own_thread_local_variables() {
        let enclave = load(small(), &CONF);
        assert_eq!(call(&*enclave, SUM, &[1]), Ok(8));
        assert_eq!(call(&*enclave, SUM, &[1]), Ok(9));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| call(&*enclave, SUM, &[1]));
            assert_eq!(other.join().unwrap(), Ok(8));
        });
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn threads_wait_and_wake_and_an_extra_thread_is_refused() {
        let enclave = &start(small(), &CONF);
        let heap = enclave.heap();
        let ends = [heap.start as u64, heap.end as u64];
        assert_eq!(call(enclave, Ecall::initialise, &ends), Ok(0));
        // SAFETY: the emulation's memory is readable, and the heap is page-aligned.
        let word = unsafe { AtomicU32::from_ptr(heap.start as *mut u32) };
        let come = |so_many| {
            while word.load(SeqCst) != so_many {
                std::thread::yield_now();
            }
        };
        let stay = || call(enclave, STAY, &[heap.start as u64, 100]);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(stay)).collect();
            come(4);
            let refused = call(enclave, Ecall::nothing, &[]);
            assert_eq!(refused, Err(EcallError::OutOfThreads { tcs: 4 }));
            word.store(100, SeqCst);
            enclave.waits.wake();
            let mut numbers: Vec<_> =
                threads.into_iter().map(|one| one.join().unwrap().unwrap()).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2, 3]);
            // Again, woken from inside.
            word.store(0, SeqCst);
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(stay)).collect();
            come(3);
            assert_eq!(call(enclave, LET_GO, &[heap.start as u64, 100]), Ok(0));
            assert!(threads.into_iter().all(|one| one.join().unwrap().is_ok()));
        });
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn eight_threads_make_ecalls_and_ocalls_concurrently() {
        const CALLS: u64 = 300;
        let enclave = load(small(), &Conf { tcs: 8, ..CONF });
        let enclave = &*enclave;
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                scope.spawn(move || {
                    for time in 0..CALLS {
                        let expected = thread + 2 * time + 3 + 8 + 15;
                        assert_eq!(call(enclave, FIVE, &[thread, time, 1, 2, 3]), Ok(expected));
                        assert_eq!(call(enclave, Ecall::leave, &[3]), Ok(3));
                    }
                });
            }
        });
        assert_eq!(enclave.ocalls(), 8 * CALLS * 3);
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn an_ocall_carries_five_words_out_and_one_in() {
        let enclave = start(small(), &Conf { tcs: 1, ..CONF });
        let heap = enclave.heap().start as u64;
        let page = enclave.base() + enclave.layout.tcs_page(0);
        let _ = crate::thread::Thread::current(false).unwrap();
        let mut entry = Entry::new(emulation::vdso(), page);
        // SAFETY: no other thread is inside.
        let left = unsafe { entry.call(LET_GO as u64, [heap, 9, 0, 0, 0]) };
        assert_eq!(left, ExitReason::Ocall(Ocall::wake as u64, [heap, 1000, 2, 3, 4]));
        // SAFETY: the last exit was an OCALL.
        assert_eq!(unsafe { entry.answer(u64::MAX - 1) }, ExitReason::Done(u64::MAX - 1));
        // An answer without an OCALL in progress is refused inside.
        // SAFETY: the code inside detects it.
        let left = unsafe { entry.answer(1) };
        assert!(
            matches!(left, ExitReason::Cut(fault) if fault.signal() == libc::SIGILL),
            "{left:?}"
        );
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn a_refused_entry_is_reported() {
        let enclave = || {
            let enclave = start(small(), &Conf { tcs: 1, ..CONF });
            assert_eq!(call(&enclave, FIVE, &[1]), Ok(1));
            enclave
        };
        // In the emulation's memory: the next frame, and the number of frames.
        let set = |enclave: &Sgx<Emulated>, field: usize, value: u32| {
            let page = enclave.base() + enclave.layout.tcs_page(0);
            // SAFETY: the TCS's page is mapped as long as the enclave, and no thread is inside.
            unsafe { ((page + field) as *mut u32).write_volatile(value) };
        };
        let full = enclave();
        set(&full, 24, 2);
        let why = call(&full, FIVE, &[1]).unwrap_err();
        assert_eq!(why, EcallError::NotEntered { vector: 13 });
        assert_eq!(call(&full, FIVE, &[1]), Err(EcallError::Aborting));
        // With only one frame no thread can enter after a fault, so its location is unknown.
        let narrow = enclave();
        set(&narrow, 28, 1);
        let why = call(&narrow, Ecall::misbehave, &[3]).unwrap_err();
        assert!(matches!(why, EcallError::Fault { signal: libc::SIGILL, at: 0, .. }), "{why}");
    }

    #[test]
    #[ignore = "another test runs it in a separate process"]
    fn an_enclave_changed_after_signing_does_not_start() {
        let fails = |pages: &Pages| {
            InitializedEnclave::new(pages, Emulated::new()).map(drop).unwrap_err().why
        };
        let mut pages = pages(small(), &CONF, &PROCESSOR);
        let content = pages.parts.iter_mut().find_map(|(_, content)| content.as_mut()).unwrap();
        content[0].0[100] ^= 1;
        let why = fails(&pages);
        assert!(why.contains("SGX_IOC_ENCLAVE_INIT") && why.contains("signature"), "{why}");
        let elf = Elf::parse(small().bytes).unwrap();
        let refused = |processor| Pages::new(&elf, &CONF, &processor, key()).unwrap_err().why;
        let why = refused(Processor { largest: 1 << 16, ..PROCESSOR });
        assert!(why.contains("exceeds this CPU's limit of 65536"), "{why}");
        // All pages fit, but not the SECS.
        let parts = pages.parts.iter().map(|(part, _)| part.range.len()).sum::<usize>();
        let why = refused(Processor { epc: parts as u64, ..PROCESSOR });
        assert!(why.contains("the kernel would swap its pages"), "{why}");
    }
}
