/* Six planted bugs, one per run:
 *
 *   PROGRAM BUG planted|control
 *
 * The control runs the same instructions with a correct index, length or order. A write stores the previous
 * value, so that the program runs to its end if no mechanism stops it. */
#include <stddef.h>

#include "bounds.h"

/* Hides a value, so that the compiler neither detects nor removes the wrong access. */
#define HIDDEN(value) __asm__ volatile("" : "+r"(value) : : "memory")

/* Makes the array visible to unknown code, so that it exists. Its size stays known. */
#define KNOWN_ELSEWHERE(array) __asm__ volatile("" : : "r"(array) : "memory")

/* Reads and writes back; a macro, so that the compiler knows the size of the array. */
#define TOUCH(array, index, b)                  \
    do {                                        \
        KNOWN_ELSEWHERE(array);                 \
        check_read(b, &(array)[index], 1);      \
        char value = (array)[index];            \
        HIDDEN(value);                          \
        check_write(b, &(array)[index], 1);     \
        (array)[index] = value;                 \
        KNOWN_ELSEWHERE(array);                 \
    } while (0)

enum { LENGTH = 16 };

static void heap_overflow(size_t planted) {
    char *block = calloc(1, LENGTH);
    bounds b = bounds_of(block, LENGTH);
    size_t index = LENGTH - 1 + planted;
    HIDDEN(index);
    TOUCH(block, index, b);
}

static void stack_overflow(size_t planted) {
    char array[LENGTH] = {0};
    bounds b = bounds_of(array, LENGTH);
    size_t index = LENGTH - 1 + planted;
    HIDDEN(index);
    TOUCH(array, index, b);
}

struct record {
    char name[LENGTH];
    char rank[LENGTH];
};

static void inside_struct(size_t planted) {
    struct record *record = calloc(1, sizeof *record);
    bounds whole = bounds_of(record, sizeof *record);
    bounds name = narrowed(whole, record->name, sizeof record->name);
    size_t index = LENGTH - 1 + planted;
    HIDDEN(index);
    TOUCH(record->name, index, name);
}

/* Past the gap between two blocks, into another block. */
static void far_overflow(size_t planted) {
    char *block = calloc(1, 4096), *other = calloc(1, 4096);
    bounds b = bounds_of(block, 4096);
    ptrdiff_t index = planted ? other - block + 8 : 8;
    HIDDEN(index);
    TOUCH(block, index, b);
    free(other);
}

static void use_after_free(size_t planted) {
    char *block = calloc(1, LENGTH), *kept = block;
    bounds b = bounds_of(block, LENGTH);
    HIDDEN(kept);
    if (planted) free(block);
    check_read(b, &kept[8], 1);
    char value = kept[8];
    HIDDEN(value);
    if (!planted) free(block);
}

/* By a library function. */
static void through_memcpy(size_t planted) {
    static char source[2 * LENGTH];
    char *block = malloc(LENGTH);
    bounds b = bounds_of(block, LENGTH), from = bounds_of(source, sizeof source);
    size_t length = LENGTH + planted;
    HIDDEN(length);
    copy(block, b, source, from, length);
    KNOWN_ELSEWHERE(block);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(size_t planted);
    } bugs[] = {
        {"heap", heap_overflow}, {"stack", stack_overflow},       {"struct", inside_struct},
        {"far", far_overflow},   {"use-after-free", use_after_free}, {"memcpy", through_memcpy},
    };
    for (size_t i = 0; count == 3 && i < sizeof bugs / sizeof *bugs; i++) {
        if (strcmp(arguments[1], bugs[i].name) != 0) continue;
        bugs[i].run(strcmp(arguments[2], "planted") == 0);
        puts("ran to its end");
        return 0;
    }
    fputs("arguments: BUG planted|control\n", stderr);
    return 2;
}
