//! The interface between the host and the code inside the enclave, declared once: both sides are generated from it.
//!
//! A call takes up to five words and returns one, in registers, so that it can cross any boundary: a function call,
//! another process, a virtual machine.

#![no_std]

/// Number of words of a call.
pub const WORDS: usize = 5;

/// Maximum number of slots of `larson`.
pub const MAX_SLOTS: u64 = 1 << 14;

/// Declares calls: generates their numbers, a trait that answers them, with its dispatch, and a trait that makes
/// them.
macro_rules! interface {
    ($number:ident, $answer:ident, $make:ident: $($(#[$doc:meta])* fn $name:ident($($word:ident),*);)*) => {
        /// The numbers of the calls, in the order of their declaration.
        #[allow(non_camel_case_types, reason = "the number of a call has the call's name")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u64)]
        pub enum $number { $($(#[$doc])* $name),* }

        impl $number {
            /// Returns the call of a number.
            pub fn of(number: u64) -> Option<Self> {
                $(if number == Self::$name as u64 { return Some(Self::$name); })*
                None
            }

            /// Returns the call's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }

        /// The side that answers the calls.
        pub trait $answer {
            $($(#[$doc])* fn $name(&self, $($word: u64),*) -> u64;)*

            /// Dispatches a call.
            #[inline]
            fn answer(&self, call: $number, words: [u64; WORDS]) -> u64 {
                let mut words = words.into_iter();
                let mut next = || words.next().unwrap_or(0);
                let _ = &mut next;
                match call { $($number::$name => { $(let $word = next();)* self.$name($($word),*) })* }
            }
        }

        /// The side that makes the calls.
        pub trait $make {
            /// The error of a call.
            type Error;

            /// Makes a call.
            ///
            /// # Errors
            /// Returns why the call failed.
            fn call(&self, call: $number, words: [u64; WORDS]) -> Result<u64, Self::Error>;

            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Returns why the call failed.
                #[inline]
                fn $name(&self, $($word: u64),*) -> Result<u64, Self::Error> {
                    let given: &[u64] = &[$($word),*];
                    let mut words = [0; WORDS];
                    words[..given.len()].copy_from_slice(given);
                    self.call($number::$name, words)
                }
            )*
        }
    };
}

// Calls into the enclave. `enclave_thread` is that of the Open Enclave sample; the others serve the other experiments
// and the tests. Pointers are addresses inside the enclave.
interface! { Ecall, Trusted, Enter:
    /// Initialises the allocator with the heap's first byte and its end. Called once, by the loader. Returns 0, or an
    /// error code.
    fn initialise(heap_start, heap_end);
    /// Does nothing: the cost of a call itself.
    fn nothing();
    /// Makes `times` OCALLs `nothing`; returns how many returned 0.
    fn leave(times);
    /// Runs the sample's loop: a queue of 15 blocks, and sizes below the maximum from a generator with this seed; if
    /// `touch` is 1, each page of a block is written. Returns the number of failed allocations (NULL) in the low 32
    /// bits, and the number of pointers outside the heap in the high 32. The last 15 blocks stay allocated, as in the
    /// sample.
    fn enclave_thread(num_allocations, max_allocation_size, seed, touch);
    /// Allocates; returns 0 if no space is left.
    fn malloc(size);
    /// Frees.
    fn free(pointer);
    /// Allocates zeroed memory; returns 0 if no space is left.
    fn calloc(count, size);
    /// Grows or shrinks a block and keeps its bytes; returns 0 if no space is left.
    fn realloc(pointer, size);
    /// Allocates at an alignment; returns 0 if no space is left, or if it is not a power of two of at least 8.
    fn aligned_alloc(alignment, size);
    /// Returns how many bytes of a block may be used.
    fn usable_size(pointer);
    /// Returns a statistic of the allocator, bytes: 0 the memory in use, 1 the peak, 2 the capacity of the heap. All
    /// ones if the allocator does not report it.
    fn mallinfo(which);
    /// Fills bytes inside the heap; returns their number, or 0 if they extend beyond the heap.
    fn fill(pointer, length, byte);
    /// Returns how many bytes inside the heap have this value, up to the first that differs; 0 if they extend beyond
    /// the heap.
    fn equal(pointer, length, byte);
    /// Allocates blocks of one size (at least 8) until no space is left, then frees them all; returns their number.
    fn drain(size);
    /// Runs one thread of larson: each round replaces a random one of `slots` shared blocks (at most `MAX_SLOTS`),
    /// which another thread may have allocated; sizes are from 8 to below the maximum. The last thread to leave frees
    /// the remaining blocks. Failures as for `enclave_thread`; an overwritten block is a fault.
    fn larson(rounds, slots, max_size, seed);
    /// Allocates blocks and passes them to `consume` by a queue inside the enclave; failures as above.
    fn produce(blocks, max_size, seed);
    /// Takes `blocks` blocks from the queue, waiting for them, and frees them; returns how many were not NULL.
    fn consume(blocks);
    /// Opens a SmallBank with a number of customers, each with a checking and a savings account of 1000 each. Returns
    /// their number, or 0 if no space is left or a bank is open.
    fn bank_open(customers);
    /// Runs SmallBank transactions, the five types with equal probability; returns how many completed, i.e. all but
    /// those that found no space. (A transaction that the bank's rules refuse counts as completed.)
    fn bank_run(transactions, seed);
    /// Returns the total balance of all accounts, minus deposits, plus withdrawals.
    fn bank_money();
    /// Closes the bank and frees its memory; returns how many customers it had.
    fn bank_close();
    /// Performs a forbidden operation, for the tests: 0 a system call, 1 a write below the stack, 2 a wild pointer, 3
    /// an illegal instruction, 4 an endless loop.
    fn misbehave(how);
    /// Cleans up. The last call, made once by the loader. Returns 0.
    fn finish();
}

// Calls out of the enclave.
interface! { Ocall, Untrusted, Leave:
    /// Does nothing: the cost of a call itself. Returns 0.
    fn nothing();
    /// Waits until a word inside the enclave differs from a value, or until a wake: for locks that sleep.
    fn wait(address, value);
    /// Wakes threads that wait at an address.
    fn wake(address, count);
}

/// How a thread enters and leaves: written by the loader at the end of each TCS's TLS area, at FS:0, where the x86-64
/// ABI requires its own address.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadBlock {
    /// The address of this block, which `mov rax, fs:0` reads.
    pub own: u64,
    /// The host's stack pointer while the thread is inside.
    pub host_stack: u64,
    /// The target of an OCALL: `fn(number, words...) -> u64` with the System V calling convention, called with the
    /// enclave's stack and thread. In the host it switches both and switches back; in a virtual machine it is next to
    /// the image, and exits.
    pub ocall: u64,
    /// The index of this TCS.
    pub number: u64,
    /// The host's FS base.
    pub host_fs: u64,
    /// The host's GS base.
    pub host_gs: u64,
    /// Padding: makes the block two cache lines long.
    pub reserved: [u64; 10],
}
