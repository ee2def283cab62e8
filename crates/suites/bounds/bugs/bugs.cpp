// The six bugs of bugs.c with the containers of the standard library.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#define HIDDEN(value) __asm__ volatile("" : "+r"(value) : : "memory")

constexpr size_t LENGTH = 16;

// Makes the memory visible to unknown code, so that it exists.
#define KNOWN_ELSEWHERE(container) __asm__ volatile("" : : "r"((container).data()) : "memory")

// Reads and writes back.
template <typename Container> static void touch(Container &container, size_t index) {
    HIDDEN(index);
    KNOWN_ELSEWHERE(container);
    char value = container[index];
    HIDDEN(value);
    container[index] = value;
    KNOWN_ELSEWHERE(container);
}

static void heap_overflow(size_t planted) {
    std::vector<char> block(LENGTH);
    touch(block, LENGTH - 1 + planted);
}

static void stack_overflow(size_t planted) {
    std::array<char, LENGTH> array = {};
    touch(array, LENGTH - 1 + planted);
}

struct record {
    std::array<char, LENGTH> name, rank;
};

static void inside_struct(size_t planted) {
    auto one = std::make_unique<record>();
    touch(one->name, LENGTH - 1 + planted);
}

static void far_overflow(size_t planted) {
    std::vector<char> block(4096), other(4096);
    touch(block, planted ? static_cast<size_t>(other.data() - block.data() + 8) : 8);
}

static void use_after_free(size_t planted) {
    std::vector<char> block(LENGTH);
    char *kept = block.data();
    HIDDEN(kept);
    if (planted) std::vector<char>().swap(block);
    char value = kept[8];
    HIDDEN(value);
}

static void through_memcpy(size_t planted) {
    static char source[2 * LENGTH];
    std::vector<char> block(LENGTH);
    size_t length = LENGTH + planted;
    HIDDEN(length);
    std::memcpy(block.data(), source, length);
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
    for (const auto &bug : bugs) {
        if (count != 3 || std::strcmp(arguments[1], bug.name) != 0) continue;
        bug.run(std::strcmp(arguments[2], "planted") == 0);
        std::puts("ran to its end");
        return 0;
    }
    std::fputs("arguments: BUG planted|control\n", stderr);
    return 2;
}
