/* Stores pointers at addresses a MiB apart, so that the bounds of each need a separate table. MPX instructions come from
 * the compiler, so the source has no checks. Their number depends on the shape of the code: as in the published
 * program, the array and the object are local to the function with the loop.
 *
 *   PROGRAM COUNT kept|freed
 *
 * kept: the memory stays until the exit. freed: it is freed after the last store. The instructions of `run` are
 * counted without those of `check`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNT = 30000, COVERED = 1 << 20 };

/* Hooks that guest_tables.c adds to the program. */
#ifndef STORED
#define STORED(slot)
#endif

/* Counts the slots that are aligned, separate and contain the pointer. */
__attribute__((noinline)) static int check(int **slots[], int count, const int *target) {
    int right = 0;
    for (int i = 0; i < count; i++) {
        int aligned = (uintptr_t)slots[i] % COVERED == 0;
        int separate = i == 0 || slots[i] != slots[i - 1];
        right += aligned && separate && *slots[i] == target;
    }
    return right;
}

/* Returns the number of pointers that were stored. */
__attribute__((noinline)) static int run(int count, int freed) {
    int target = 0;
    int **slots[MAX_COUNT];
    int i, stored;
    for (i = 0; i < count; i++) {
        if (posix_memalign((void **)&slots[i], COVERED, 1) != 0) return i;
        *slots[i] = &target;
        STORED(slots[i]);
    }
    stored = check(slots, count, &target);
    if (freed) {
        for (i = 0; i < count; i++) free(slots[i]);
    }
    return stored;
}

int main(int arguments, char **argument) {
    int count = arguments == 3 ? atoi(argument[1]) : 0;
    if (count < 1 || count > MAX_COUNT) {
        fputs("arguments: COUNT kept|freed\n", stderr);
        return 2;
    }
    /* The first calls bind the functions, which takes thousands of instructions. */
    void *first;
    if (posix_memalign(&first, sizeof first, 1) != 0) return 3;
    free(NULL);
    printf("stored=%d\n", run(count, strcmp(argument[2], "freed") == 0));
    return 0;
}
