/* Six planted bugs, one a run:
 *
 *   PROGRAM BUG planted|control
 *
 * The control runs the same instructions with an index, a length or an order that is right. What is
 * written is what was there before, so that nothing else goes wrong where nothing stops the program. */
#include <stddef.h>

#include "bounds.h"

/* The compiler must not see that an access is wrong, nor leave it out. */
#define HIDDEN(value) __asm__ volatile("" : "+r"(value) : : "memory")

/* Something else may know of the array, so that it is really made. Its size stays known. */
#define KNOWN_ELSEWHERE(array) __asm__ volatile("" : : "r"(array) : "memory")

/* Reads and writes back, written out where the array is, whose size the compiler then knows. */
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

/* Beyond whatever lies between two blocks: into another block. */
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

/* By a function of the library. */
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
