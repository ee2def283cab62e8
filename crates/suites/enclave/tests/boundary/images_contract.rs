//! Contract of every image in an enclave, on SGX hardware and on an emulated CPU.

use enclave_interface::Enter as _;

use super::Enclave;

/// Checks OCALLs, allocation by one thread and by four, and the bank. `sizes` are those of the blocks that drain the
/// heap.
pub(super) fn check(name: &str, enclave: &dyn Enclave, sizes: &[u64]) {
    assert_eq!(enclave.leave(100), Ok(100), "{name}");
    assert_eq!(enclave.ocalls(), 100, "{name}");
    for size in sizes {
        let first = enclave.drain(*size).unwrap();
        assert!(first > 0, "{name}: blocks of {size} B");
        assert_eq!(
            enclave.drain(*size),
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
    assert_eq!(enclave.blocked(), 0, "{name}");
}
