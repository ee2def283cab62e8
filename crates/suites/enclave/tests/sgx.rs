//! Every image in an SGX enclave, on machines with SGX.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use enclave::conf::Conf;
use enclave::error::{EcallError, FaultLocation};
use enclave::images::{self, Image};
use enclave::kinds::{self, Enclave, EnclaveKind};
use enclave_interface::Enter;

/// Returns whether SGX is available; notes the test as untested otherwise.
fn is_available(test: &str) -> bool {
    let there = kinds::available(EnclaveKind::Sgx);
    if let Err(why) = &there {
        machine::untested::note(test, why);
    }
    there.is_ok()
}

fn load(image: &Image) -> Box<dyn Enclave> {
    let conf = Conf { heap_pages: 16_384, tcs: 4, ..Conf::default() };
    kinds::load(EnclaveKind::Sgx, image, &conf).unwrap()
}

#[test]
fn every_image_works_in_hardware() {
    if !is_available("every_image_works_in_hardware") {
        return;
    }
    for image in images::all() {
        let (name, enclave) = (image.allocator, load(image));
        let enclave = &*enclave;
        assert_eq!(enclave.leave(100), Ok(100), "{name}");
        assert_eq!((enclave.ocalls(), enclave.blocked()), (100, 0), "{name}");
        for size in [16, 5000] {
            let first = enclave.drain(size).unwrap();
            assert!(first > 0, "{name}: blocks of {size} B");
            assert_eq!(
                enclave.drain(size),
                Ok(first),
                "{name}: the same number of {size} B blocks again"
            );
        }
        assert_eq!(enclave.enclave_thread(1000, 16_384, 1, 1), Ok(0), "{name}");
        let block = enclave.malloc(1000).unwrap();
        assert!(enclave.heap().contains(&(block as usize)), "{name}");
        assert_eq!(enclave.fill(block, 1000, 7), Ok(1000), "{name}");
        assert_eq!(enclave.equal(block, 1000, 7), Ok(1000), "{name}");
        assert_eq!(enclave.bank_open(10), Ok(10), "{name}");
        std::thread::scope(|scope| {
            let produce = || enclave.produce(2000, 1000, 1);
            let consume = || enclave.consume(2000);
            let [one, two] = [(); 2].map(|()| scope.spawn(produce));
            let [three, four] = [(); 2].map(|()| scope.spawn(consume));
            let results = [one, two, three, four].map(|one| one.join().unwrap());
            assert_eq!(results, [Ok(0), Ok(0), Ok(2000), Ok(2000)], "{name}");
            let run = || enclave.bank_run(2000, 1);
            let results = [(); 4].map(|()| scope.spawn(run)).map(|one| one.join().unwrap());
            assert_eq!(results, [Ok(2000); 4], "{name}");
        });
        assert_eq!(enclave.bank_money(), Ok(20_000), "{name}");
    }
}

#[test]
fn a_fault_in_hardware_is_a_failed_ecall() {
    if !is_available("a_fault_in_hardware_is_a_failed_ecall") {
        return;
    }
    let enclave = load(images::find("dlmalloc").unwrap());
    for _ in 0..3 {
        let why = enclave.misbehave(0).unwrap_err();
        assert!(matches!(why, EcallError::SystemCall { number: 39, .. }), "{why}");
        for (how, place) in
            [(1, Some(FaultLocation::Guard)), (2, Some(FaultLocation::Outside)), (3, None)]
        {
            let why = enclave.misbehave(how).unwrap_err();
            let EcallError::Fault { place: found, .. } = why else { panic!("{why}") };
            assert!(place.is_none_or(|place| place == found), "{why}");
            assert_eq!(enclave.leave(2), Ok(2), "after {why}");
        }
    }
    assert_eq!(enclave.blocked(), 3);
}

#[test]
fn without_hardware_loading_states_cause_and_fix() {
    let Err(why) = kinds::available(EnclaveKind::Sgx) else { return };
    let loaded = kinds::load(EnclaveKind::Sgx, images::find("dlmalloc").unwrap(), &Conf::default());
    assert_eq!(loaded.err().unwrap(), why);
    assert!(why.remedy.is_some_and(|remedy| !remedy.contains('\n')));
    let capability = kinds::capability(EnclaveKind::Sgx);
    assert_eq!((capability.name.as_str(), capability.state.is_present()), ("enclave-sgx", false));
}
