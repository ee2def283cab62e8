/* A small image that does what code inside may and must not do; the test defines the numbers of the calls. */
typedef unsigned long u64;

struct block {
    u64 own, host_stack;
    u64 (*ocall)(u64, u64, u64, u64, u64, u64);
    u64 number;
};

static __thread u64 sum = 7;
static __thread u64 zero;
static u64 *ended; /* A word of the host, which finishing increments. */
static const char *mark; /* The name of a file that must not be created. */
static const char text[] = "relocated";
static const char *volatile relocated = text;
static __thread const char *volatile relocated_too = text;

static struct block *self(void) {
    struct block *block;
    __asm__("mov %%fs:0, %0" : "=r"(block));
    return block;
}

/* The last three words are only passed to be checked. */
static u64 ocall(u64 number, u64 w0, u64 w1) { return self()->ocall(number, w0, w1, 2, 3, 4); }

static __attribute__((noinline)) u64 overrun(u64 deep) {
    volatile char room[1024];
    room[0] = (char)deep;
    return overrun(deep + 1) + room[0];
}

/* The target of a hijacked thread: creates a file, and ends the process. */
static __attribute__((noipa, used)) void astray(void) {
    u64 result = 2; /* open, O_WRONLY | O_CREAT */
    __asm__ volatile("syscall" : "+a"(result) : "D"(mark), "S"(0101), "d"(0600) : "rcx", "r11", "memory");
    for (;;) {
        result = 231; /* exit_group */
        __asm__ volatile("syscall" : "+a"(result) : "D"(0) : "rcx", "r11", "memory");
    }
}

/* Changes all state that a function must preserve, then faults: control words, a full x87 stack, flags; with
   wide & 1 also the upper halves of YMM, with wide & 2 the AVX-512 registers. */
static __attribute__((noipa)) void spoil(u64 wide) {
    unsigned mxcsr = 0xffc0;
    unsigned short control = 0x0c7f;
    __asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(mxcsr), "m"(control));
    __asm__ volatile("fld1; fld1; fld1; fld1; fld1; fld1; fld1; fld1");
    if (wide & 1)
        __asm__ volatile(
            "vpcmpeqd %%xmm0, %%xmm0, %%xmm0; vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0;"
            "vmovups %%ymm0, %%ymm7; vmovups %%ymm0, %%ymm15" ::: "xmm0", "xmm7", "xmm15");
    if (wide & 2)
        __asm__ volatile(
            "vpternlogd $0xff, %%zmm16, %%zmm16, %%zmm16; vpternlogd $0xff, %%zmm31, %%zmm31, %%zmm31" :::);
    __asm__ volatile("pushfq; orq $0x40400, (%%rsp); popfq; ud2" ::: "memory");
}

/* Work whose result depends on memory, on a thread-local variable, and on every type of register. */
static u64 work(u64 times) {
    double real = 1;
    long double wide = 1;
    u64 whole = 1;
    sum = 7;
    for (u64 time = 0; time < times; time++) {
        sum = sum * 6364136223846793005u + 1442695040888963407u;
        whole ^= sum >> 33;
        real = real * 0.5 + (double)(sum >> 60);
        wide = wide * 0.25L + (long double)(whole & 15);
    }
    return sum ^ whole ^ (u64)(real * 1048576) ^ (u64)(wide * 65536);
}

static __attribute__((noipa)) u64 misbehave(u64 how, u64 address) {
    u64 result = 39; /* getpid */
    switch (how) {
    case 0: __asm__ volatile("syscall" : "+a"(result)::"rcx", "r11", "memory"); return result;
    case 1: return overrun(0);
    case 2: *(volatile u64 *)address = 1; return 0;
    case 3: __asm__ volatile("std; ud2"); return 0;
    case 4: __asm__ volatile("xor %%edx, %%edx; xor %%ecx, %%ecx; div %%ecx" ::: "rax", "rcx", "rdx"); return 0;
    case 5: ((void (*)(void))address)(); return 0;
    case 8: spoil(address); return 0;
    case 7: __asm__ volatile("outb %%al, $0x80" ::"a"(0)); return 0;
    default: *(volatile char *)(void *)&misbehave = 0; return 0;
    }
}

u64 enclave_entry(u64 number, u64 w0, u64 w1, u64 w2, u64 w3, u64 w4) {
    u64 right = 0;
    switch (number) {
    case INITIALISE: return !(w0 < w1 && relocated[0] == 'r' && self()->own == (u64)self());
    case NOTHING: return 0;
    case LEAVE:
        for (u64 time = 0; time < w0; time++) right += ocall(OCALL_NOTHING, 0, 0) == 0;
        return right;
    case SUM: sum += w0; return relocated_too == relocated ? sum + zero : 0;
    case FIVE: return w0 + 2 * w1 + 3 * w2 + 4 * w3 + 5 * w4;
    case WIDE: { /* Through the upper half of a 256-bit vector. */
        u64 back;
        __asm__("vmovq %1, %%xmm0; vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0; vextractf128 $1, %%ymm0, %%xmm1;"
                "vmovq %%xmm1, %0; vzeroupper" : "=r"(back) : "r"(w0) : "xmm0", "xmm1");
        return back;
    }
    case STAY: { /* Until the word at w0 is w1, sleeping by an OCALL. */
        unsigned *word = (unsigned *)w0, seen;
        __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
        while ((seen = __atomic_load_n(word, __ATOMIC_SEQ_CST)) != w1) ocall(OCALL_WAIT, w0, seen);
        return self()->number;
    }
    case LET_GO:
        __atomic_store_n((unsigned *)w0, (unsigned)w1, __ATOMIC_SEQ_CST);
        return ocall(OCALL_WAKE, w0, 1000);
    case WORK: return work(w0);
    case POKE: *(volatile u64 *)w0 = w1; return 0;
    case MARK: mark = (const char *)w0; return (u64)&astray;
    case REMEMBER: ended = (u64 *)w0; return 0;
    case FINISH:
        if (ended) ++*ended;
        return 0;
    default: return misbehave(w0, w1);
    }
}
