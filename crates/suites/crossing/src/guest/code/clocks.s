# Calibration of the counter and of the core clock without Linux. Only in the kernel's page table.

# Returns in rax the ticks of `count` dependent instructions: minimum of five runs, including the empty pair.
.macro CHAIN name, count, instruction:vararg
\name:
    push %rbx
    mov $-1, %rbx
    mov $5, %r10d
.L\name\()_run:
    mov $3, %esi
    mov $5, %edi
    mov $(\count / 64), %r11d
    START %r8d, %r9d
    .balign 64, 0x90
.L\name\()_body:
.rept 64
    \instruction
.endr
    dec %r11d
    jnz .L\name\()_body
    STOP
    JOIN %rax, %rdx, %rax
    JOIN %r8, %r9, %r8
    sub %r8, %rax
    cmp %rbx, %rax
    cmovb %rax, %rbx
    dec %r10d
    jnz .L\name\()_run
    mov %rbx, %rax
    pop %rbx
    ret
.endm

CHAIN guest_adds, ADDS, add %rdi, %rsi
CHAIN guest_multiplies, MULTIPLIES, imul %edi, %esi

# Returns in rax the ticks of PIT_COUNT steps of the PIT's channel 2: minimum of three runs, 0 if it never ends.
guest_pit_ticks:
    push %rbx
    mov $-1, %rbx
    mov $3, %r10d
.Lpit_run:
    # Speaker off, gate low; mode 0, both bytes; the rising gate starts the count.
    in $0x61, %al
    and $0xfc, %al
    out %al, $0x61
    mov $0xb0, %al
    out %al, $0x43
    mov $(PIT_COUNT & 0xff), %al
    out %al, $0x42
    mov $(PIT_COUNT >> 8), %al
    out %al, $0x42
    in $0x61, %al
    or $1, %al
    out %al, $0x61
    START %r8d, %r9d
    mov $10000000, %r11d
.Lpit_wait:
    in $0x61, %al
    test $0x20, %al
    jnz .Lpit_done
    dec %r11d
    jnz .Lpit_wait
    xor %eax, %eax
    pop %rbx
    ret
.Lpit_done:
    STOP
    JOIN %rax, %rdx, %rax
    JOIN %r8, %r9, %r8
    sub %r8, %rax
    cmp %rbx, %rax
    cmovb %rax, %rbx
    dec %r10d
    jnz .Lpit_run
    mov %rbx, %rax
    pop %rbx
    ret

# Returns in rax the counter's frequency by CPUID leaf 0x15, Hz, or 0.
guest_stated_hertz:
    push %rbx
    xor %eax, %eax
    cpuid
    cmp $0x15, %eax
    jb .Lnot_stated
    mov $0x15, %eax
    xor %ecx, %ecx
    cpuid
    test %eax, %eax
    jz .Lnot_stated
    mov %eax, %esi
    mov %ebx, %eax
    mov %ecx, %ecx
    mul %rcx
    div %rsi
    pop %rbx
    ret
.Lnot_stated:
    xor %eax, %eax
    pop %rbx
    ret
