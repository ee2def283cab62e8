/* The program tables.c as the init process of a guest with MPX, whose kernel makes the bounds tables. GCC's MPX is not
 * needed: each store of a pointer is followed by the instructions that store its bounds.
 *
 *   init COUNT kept|freed none|kernel
 *
 * none: MPX is off, and its instructions are NOPs. kernel: the kernel makes the tables. The program runs in a process of
 * its own. QEMU's plugin counts the instructions between two markers, which are before its start and after its end: the
 * published counts are those of whole processes. init prints the result and restarts the machine, which ends QEMU. */
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

static void remember(int **slot);

/* BNDSTX takes the slot and the pointer in it. QEMU 7.2 skips the byte of base and index twice, so a NOP follows. */
#define STORED(slot)                                                                               \
    do {                                                                                           \
        __asm__ volatile("bndmk (%0), %%bnd0\n bndstx %%bnd0, (%1,%0)\n nop\n"                     \
                         :                                                                         \
                         : "a"(*(slot)), "d"(slot)                                                 \
                         : "memory");                                                              \
        remember(slot);                                                                            \
    } while (0)
#define BEGIN_COUNT() __asm__ volatile("nopl 0x746f6c01(%%rax,%%rax)" ::: "memory")
#define END_COUNT() __asm__ volatile("nopl 0x746f6c02(%%rax,%%rax)" ::: "memory")
#define main whole_program
#include "tables.c"
#undef main

enum { DIRECTORY_SHIFT = 20, ENTRY_VALID = 1, BNDCSR = 4, ENABLED = 1, PRESERVED = 2 };
#define DIRECTORY_BYTES (1UL << 31)

/* Addresses of the directory for BNDCFGU = 1 << 44: the processor takes bits 12 and above as they are, and QEMU 7.2 shifts
 * bits 20 and above down to 12. */
static uint64_t *const DIRECTORIES[] = {(uint64_t *)(1UL << 44), (uint64_t *)(1UL << 36)};

static int **remembered[MAX_COUNT];
static int stores, made;
static uint64_t *directory;

static uint64_t entry_of(const void *address) {
    return directory ? directory[(uintptr_t)address >> DIRECTORY_SHIFT] : 0;
}

/* Remembers a slot and counts its table if it has one: later the memory may be freed, and its table with it. The kernel has
 * just written the entry of the table, so to read it takes no instruction of the kernel. */
static void remember(int **slot) {
    remembered[stores++] = slot;
    made += entry_of(slot) & ENTRY_VALID;
}

static void fail(const char *what) {
    perror(what);
    reboot(RB_AUTOBOOT);
}

/* Loads BNDCFGU by XRSTOR. */
static void enable(uint64_t configuration) {
    static uint8_t area[4096] __attribute__((aligned(64)));
    uint32_t size, offset, flags, more;
    __asm__("cpuid" : "=a"(size), "=b"(offset), "=c"(flags), "=d"(more) : "a"(0xd), "c"(BNDCSR));
    memcpy(area + offset, &configuration, sizeof configuration);
    uint64_t component = 1 << BNDCSR;
    memcpy(area + 512, &component, sizeof component);
    __asm__ volatile("xrstor64 %0" : : "m"(area), "a"(1 << BNDCSR), "d"(0) : "memory");
}

/* Maps and enables a directory, and stores bounds once to find out which address the processor uses. */
static void use_kernel(void) {
    for (int i = 0; i < 2; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *mapped = mmap(DIRECTORIES[i], DIRECTORY_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (mapped != DIRECTORIES[i]) fail("map the directory");
    }
    if (prctl(PR_MPX_ENABLE_MANAGEMENT, DIRECTORIES[0], 0, 0, 0)) fail("PR_MPX_ENABLE_MANAGEMENT");
    enable((uintptr_t)DIRECTORIES[0] | ENABLED | PRESERVED);
    static int target, *slot = &target;
    STORED(&slot);
    stores = made = 0;
    for (int i = 0; i < 2; i++) {
        directory = DIRECTORIES[i];
        if (entry_of(&slot) & ENTRY_VALID) break;
    }
    if (!(entry_of(&slot) & ENTRY_VALID)) fail("no table was made");
    if (prctl(PR_MPX_ENABLE_MANAGEMENT, directory, 0, 0, 0)) fail("PR_MPX_ENABLE_MANAGEMENT");
}

/* Results of the process, in memory that it shares with init. */
struct result {
    /* Pointers stored, tables that existed after their stores, and at the end, with the right bounds. */
    int stored, made, tables, bounds;
};

/* Counts the slots with a table, and if the slots are still mapped those whose bounds are in it. */
static void count_tables(struct result *result, int freed) {
    for (int i = 0; i < stores; i++) {
        int **slot = remembered[i];
        uint64_t entry = entry_of(slot);
        if (!(entry & ENTRY_VALID)) continue;
        result->tables++;
        if (freed) continue;
        const uint64_t *row = (uint64_t *)(entry & ~7UL) + ((uintptr_t)slot >> 3 & 0x1ffff) * 4;
        uint64_t pointer = (uintptr_t)*slot;
        result->bounds += row[0] == pointer && ~row[1] == pointer && row[2] == pointer;
    }
}

/* Runs the program in this process. */
static void run_here(struct result *result, int count, int freed, int by_kernel) {
    if (by_kernel) use_kernel();
    /* The first call grows the heap. */
    void *first;
    if (posix_memalign(&first, sizeof first, 1) != 0) fail("memory");
    result->stored = run(count, freed);
    result->made = made;
    count_tables(result, freed);
}

int main(int arguments, char **argument) {
    int count = arguments == 4 ? atoi(argument[1]) : 0;
    if (count < 1 || count > MAX_COUNT) fail("arguments: COUNT kept|freed none|kernel");
    int freed = strcmp(argument[2], "freed") == 0, by_kernel = strcmp(argument[3], "kernel") == 0;
    int flags = MAP_SHARED | MAP_ANONYMOUS;
    struct result *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (result == MAP_FAILED) fail("memory");
    BEGIN_COUNT();
    pid_t process = fork();
    if (process == 0) {
        run_here(result, count, freed, by_kernel);
        _exit(0);
    }
    waitpid(process, NULL, 0);
    END_COUNT();
    printf("stored=%d made=%d tables=%d bounds=%d\n", result->stored, result->made, result->tables,
        result->bounds);
    fflush(stdout);
    reboot(RB_AUTOBOOT);
}
