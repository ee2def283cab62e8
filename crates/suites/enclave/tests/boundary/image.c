/* A small image that does what an enclave may and must not; numbers of calls are given by the test. */
typedef unsigned long u64;

struct block {
    u64 own, host_stack;
    u64 (*ocall)(u64, u64, u64, u64, u64, u64);
    u64 number;
};

static __thread u64 sum = 7;
static __thread u64 zero;
static u64 *ended; /* Of the host: counts how often this ended. */
static const char text[] = "relocated";
static const char *volatile relocated = text;
static __thread const char *volatile relocated_too = text;

static struct block *self(void) {
    struct block *block;
    __asm__("mov %%fs:0, %0" : "=r"(block));
    return block;
}

/* The last three words are nobody's, and are there to be seen. */
static u64 ocall(u64 number, u64 w0, u64 w1) { return self()->ocall(number, w0, w1, 2, 3, 4); }

static __attribute__((noinline)) u64 overrun(u64 deep) {
    volatile char room[1024];
    room[0] = (char)deep;
    return overrun(deep + 1) + room[0];
}

static __attribute__((noipa)) u64 misbehave(u64 how, u64 address) {
    u64 gave = 39; /* getpid */
    switch (how) {
    case 0: __asm__ volatile("syscall" : "+a"(gave)::"rcx", "r11", "memory"); return gave;
    case 1: return overrun(0);
    case 2: *(volatile u64 *)address = 1; return 0;
    case 3: __asm__ volatile("std; ud2"); return 0;
    case 4: __asm__ volatile("xor %%edx, %%edx; xor %%ecx, %%ecx; div %%ecx" ::: "rax", "rcx", "rdx"); return 0;
    case 5: ((void (*)(void))address)(); return 0;
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
    case WIDE: { /* Through the upper half of a vector of 256 bits. */
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
    case REMEMBER: ended = (u64 *)w0; return 0;
    case FINISH:
        if (ended) ++*ended;
        return 0;
    default: return misbehave(w0, w1);
    }
}
