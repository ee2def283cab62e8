//! Every image in an SGX enclave, on machines with SGX.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use enclave::conf::Conf;
use enclave::error::{EcallError, FaultLocation};
use enclave::images::{self, Image};
use enclave::kinds::{self, Enclave, EnclaveKind};
use enclave_interface::Enter;

#[path = "boundary/images_contract.rs"]
mod images_contract;

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
        images_contract::check(image.allocator, &*load(image), &[16, 5000]);
    }
}

#[test]
fn a_fault_in_hardware_is_a_failed_ecall() {
    if !is_available("a_fault_in_hardware_is_a_failed_ecall") {
        return;
    }
    let image = images::find("dlmalloc").unwrap();
    let misbehave = |how| {
        let enclave = load(image);
        let why = enclave.misbehave(how).unwrap_err();
        assert_eq!(enclave.leave(2), Err(EcallError::Aborting), "after {why}");
        (why, enclave.blocked())
    };
    for _ in 0..3 {
        let (why, blocked) = misbehave(0);
        assert!(matches!(why, EcallError::SystemCall { number: 39, .. }), "{why}");
        assert_eq!(blocked, 1);
        for (how, place) in
            [(1, Some(FaultLocation::Guard)), (2, Some(FaultLocation::Outside)), (3, None)]
        {
            let (why, blocked) = misbehave(how);
            let EcallError::Fault { place: found, .. } = why else { panic!("{why}") };
            assert!(place.is_none_or(|place| place == found), "{why}");
            assert_eq!(blocked, 0, "after {why}");
        }
    }
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
