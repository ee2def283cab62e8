/* Plugin of QEMU's emulator: counts the instructions that a guest with one CPU executes between two markers, in user mode
 * and in the kernel. At the end marker it prints a line on standard error:
 *
 *   instructions: user=N kernel=N
 *
 * The markers are NOPs with a displacement that nothing else uses. A repeated string instruction counts once, as
 * performance counters do; QEMU executes each of its repetitions as an instruction. One that an interrupt divides counts
 * twice. An instruction that faults counts at each attempt, and one of the kernel with the rest of its block.
 *
 * Debian has no header of the interface of plugins, so its functions are declared here, in version 1. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { QEMU_PLUGIN_CB_NO_REGS };
typedef void (*callback)(unsigned int cpu, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, callback, int, void *);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, callback, int, void *);
void qemu_plugin_register_vcpu_tb_trans_cb(
    qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* nopl 0x746f6c01(%rax,%rax) and nopl 0x746f6c02(%rax,%rax). */
static const uint8_t BEGIN[] = {0x0f, 0x1f, 0x84, 0x00, 0x01, 0x6c, 0x6f, 0x74};
static const uint8_t END[] = {0x0f, 0x1f, 0x84, 0x00, 0x02, 0x6c, 0x6f, 0x74};

enum mode { USER, KERNEL, MODES };
static uint64_t counted[MODES], at_begin[MODES];
/* The repeated instruction that was executed last, and how many instructions had been counted then. */
static uint64_t repeated, counted_then;

static uint64_t all(void) { return counted[USER] + counted[KERNEL]; }

/* The kernel has the upper half of the address space. */
static enum mode mode_of(uint64_t address) { return address >> 63 ? KERNEL : USER; }

static void add_user(unsigned int cpu, void *count) {
    (void)cpu;
    counted[USER] += (uintptr_t)count;
}

static void add_kernel(unsigned int cpu, void *count) {
    (void)cpu;
    counted[KERNEL] += (uintptr_t)count;
}

/* Counts a repeated instruction unless it continues. */
static void repeat(unsigned int cpu, void *data) {
    (void)cpu;
    uint64_t address = (uintptr_t)data;
    if (address != repeated || all() != counted_then) counted[mode_of(address)]++;
    repeated = address;
    counted_then = all();
}

static void begin(unsigned int cpu, void *data) {
    (void)cpu, (void)data;
    memcpy(at_begin, counted, sizeof counted);
}

static void end(unsigned int cpu, void *data) {
    (void)cpu, (void)data;
    /* Without the marker itself. */
    fprintf(stderr, "instructions: user=%llu kernel=%llu\n",
        (unsigned long long)(counted[USER] - at_begin[USER] - 1),
        (unsigned long long)(counted[KERNEL] - at_begin[KERNEL]));
}

static bool is_repeated(const uint8_t *code, size_t size) {
    bool has_prefix = false;
    size_t at = 0;
    for (; at < size; at++) {
        uint8_t byte = code[at];
        bool is_size = byte == 0x66 || byte == 0x67, is_rex = (byte & 0xf0) == 0x40;
        if (byte == 0xf2 || byte == 0xf3)
            has_prefix = true;
        else if (!is_size && !is_rex)
            break;
    }
    if (!has_prefix || at + 1 != size) return false;
    uint8_t opcode = code[at];
    /* INS and OUTS, MOVS and CMPS, STOS, LODS and SCAS. */
    return (opcode >= 0x6c && opcode <= 0x6f) || (opcode >= 0xa4 && opcode <= 0xa7) ||
           (opcode >= 0xaa && opcode <= 0xaf);
}

static bool is_marker(const struct qemu_plugin_insn *instruction, const uint8_t *marker) {
    return qemu_plugin_insn_size(instruction) == sizeof BEGIN &&
           memcmp(qemu_plugin_insn_data(instruction), marker, sizeof BEGIN) == 0;
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(block, 0);
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(block, count - 1);
    enum mode mode = mode_of(qemu_plugin_insn_vaddr(first));
    callback add = mode == USER ? add_user : add_kernel;
    /* A repeated instruction is the last of its block. */
    bool ends_repeated = is_repeated(qemu_plugin_insn_data(last), qemu_plugin_insn_size(last));
    size_t plain = count - ends_repeated;
    if (mode == KERNEL) {
        /* The kernel executes most instructions, and nearly all of its blocks as a whole. */
        if (plain) qemu_plugin_register_vcpu_tb_exec_cb(block, add, QEMU_PLUGIN_CB_NO_REGS, (void *)plain);
    } else {
        for (size_t at = 0; at < plain; at++) {
            struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, at);
            qemu_plugin_register_vcpu_insn_exec_cb(one, add, QEMU_PLUGIN_CB_NO_REGS, (void *)1);
            if (is_marker(one, BEGIN))
                qemu_plugin_register_vcpu_insn_exec_cb(one, begin, QEMU_PLUGIN_CB_NO_REGS, NULL);
            if (is_marker(one, END))
                qemu_plugin_register_vcpu_insn_exec_cb(one, end, QEMU_PLUGIN_CB_NO_REGS, NULL);
        }
    }
    if (ends_repeated)
        qemu_plugin_register_vcpu_insn_exec_cb(
            last, repeat, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)qemu_plugin_insn_vaddr(last));
}

__attribute__((visibility("default"))) int qemu_plugin_install(
    qemu_plugin_id_t id, const void *information, int count, char **arguments) {
    (void)information, (void)count, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    return 0;
}
