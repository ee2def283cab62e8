//! What the host and the inside of an enclave agree on, declared once: both sides are made from it.
//!
//! A call takes up to five words and gives one, in registers, so that it passes any boundary: a
//! function call, another process, a virtual machine.

#![no_std]

/// The words that a call takes.
pub const WORDS: usize = 5;

/// The most slots that `larson` has.
pub const MAX_SLOTS: u64 = 1 << 14;

/// Declares calls once: gives their numbers, the trait of who answers them with its dispatch, and
/// the trait of who makes them.
macro_rules! interface {
    ($number:ident, $answer:ident, $make:ident: $($(#[$doc:meta])* fn $name:ident($($word:ident),*);)*) => {
        /// The calls by number, in the order of their declaration.
        #[allow(non_camel_case_types, reason = "a call's number has the call's name")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u64)]
        pub enum $number { $($(#[$doc])* $name),* }

        impl $number {
            /// The call of a number.
            pub fn of(number: u64) -> Option<Self> {
                $(if number == Self::$name as u64 { return Some(Self::$name); })*
                None
            }

            /// The call's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }

        /// Whoever answers the calls.
        pub trait $answer {
            $($(#[$doc])* fn $name(&self, $($word: u64),*) -> u64;)*

            /// Answers the call of a number.
            #[inline]
            fn answer(&self, call: $number, words: [u64; WORDS]) -> u64 {
                let mut words = words.into_iter();
                let mut next = || words.next().unwrap_or(0);
                let _ = &mut next;
                match call { $($number::$name => { $(let $word = next();)* self.$name($($word),*) })* }
            }
        }

        /// Whoever makes the calls.
        pub trait $make {
            /// Why a call came to nothing.
            type Error;

            /// Makes the call of a number.
            ///
            /// # Errors
            /// Why it came to nothing.
            fn call(&self, call: $number, words: [u64; WORDS]) -> Result<u64, Self::Error>;

            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// Why the call came to nothing.
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

// Into the enclave. `enclave_thread` is the seed's; the others serve the other experiments and the
// tests. Pointers are addresses inside the enclave.
interface! { Ecall, Trusted, Enter:
    /// Begins: the heap's first byte and its end. InitializedEnclave once by whoever loads. 0, or why not.
    fn initialise(heap_start, heap_end);
    /// Nothing: what a call itself costs.
    fn nothing();
    /// As many OCALLs `nothing` as asked; gives how many came back with 0.
    fn leave(times);
    /// The seed's loop: a queue of 15, sizes below the largest from a generator of this seed, each byte's
    /// page touched where `touch` is 1. Gives how many allocations came to nothing (NULL) in the low 32
    /// bits, and how many pointers lay outside the heap in the high 32. The last 15 stay allocated, as in the
    /// seed.
    fn enclave_thread(num_allocations, max_allocation_size, seed, touch);
    /// Allocates; 0 where there is no room.
    fn malloc(size);
    /// Frees.
    fn free(pointer);
    /// Allocates zeroed memory; 0 where there is no room.
    fn calloc(count, size);
    /// Grows or shrinks, keeping the bytes; 0 where there is no room.
    fn realloc(pointer, size);
    /// Allocates at an alignment; 0 where there is no room, or it is no power of two from 8 up.
    fn aligned_alloc(alignment, size);
    /// Bytes that may be used at a pointer.
    fn usable_size(pointer);
    /// What the allocator tells of itself, in bytes: 0 what is in use, 1 the most that ever was, 2 what the heap
    /// can hold. All ones where it does not tell.
    fn mallinfo(which);
    /// Fills bytes inside the heap; gives how many: none where they reach beyond it.
    fn fill(pointer, length, byte);
    /// How many bytes inside the heap are this byte, up to the first that is not; none where they reach
    /// beyond it.
    fn equal(pointer, length, byte);
    /// Allocates blocks of one size (at least 8) until there is no room, then frees them all; gives how
    /// many.
    fn drain(size);
    /// One thread's part of larson: rounds of replacing a random one of `slots` shared blocks (at most
    /// `MAX_SLOTS`), which another thread may have allocated; sizes from 8 to below the largest. The last
    /// thread to leave frees what is left. Failures as `enclave_thread`; a block that was overwritten is a
    /// fault.
    fn larson(rounds, slots, max_size, seed);
    /// Allocates blocks and hands them to `consume` by a queue inside the enclave; failures as above.
    fn produce(blocks, max_size, seed);
    /// Takes so many from the queue, waiting for them, and frees them; gives how many were blocks and not
    /// NULL.
    fn consume(blocks);
    /// Sets up SmallBank: so many customers, each with a checking and a savings account of 1000 each.
    /// Gives how many: none where there is no room, or a bank is open.
    fn bank_open(customers);
    /// So many SmallBank transactions, five kinds equally likely; gives how many were carried out: all, but
    /// for those that found no room. (One that the bank's own rule refuses is carried out.)
    fn bank_run(transactions, seed);
    /// The money in all accounts, less what transactions put in, plus what they took out.
    fn bank_money();
    /// Closes the bank and frees its memory; gives how many customers it had.
    fn bank_close();
    /// Does what is forbidden, for the tests: 0 a system call, 1 a write below the stack, 2 a wild
    /// pointer, 3 an illegal instruction, 4 no end.
    fn misbehave(how);
    /// Ends: no call comes after it. InitializedEnclave once, by whoever unloads. Gives 0.
    fn finish();
}

// Out of the enclave.
interface! { Ocall, Untrusted, Leave:
    /// Nothing: what a call itself costs. Gives 0.
    fn nothing();
    /// Waits until a word inside the enclave differs from a value, or was woken: for locks that wait.
    fn wait(address, value);
    /// Wakes those that wait at an address.
    fn wake(address, count);
}

/// How a thread enters and leaves: written by the loader at the beginning of each TCS's TLS area, at
/// FS:0 as the x86-64 ABI wants its own address there.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadBlock {
    /// The address of this block: what `mov rax, fs:0` gives.
    pub own: u64,
    /// The host's stack pointer while the thread is inside.
    pub host_stack: u64,
    /// Where an OCALL goes: `fn(number, words...) -> u64`, by the System V convention, called with the
    /// enclave's stack and thread. In the host, it changes both and changes them back; in a virtual machine
    /// it stands beside the image, and exits.
    pub ocall: u64,
    /// The number of this TCS.
    pub number: u64,
    /// Of the host: its FS base.
    pub host_fs: u64,
    /// Of the host: its GS base.
    pub host_gs: u64,
    /// Nothing: makes the block two cache lines long.
    pub reserved: [u64; 10],
}
