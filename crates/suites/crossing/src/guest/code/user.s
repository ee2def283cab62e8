# What runs in ring 3, and for same-ring in ring 0.

# One loop a kind. The crossing's own instructions are between the labels.
.macro CROSSING_LOOP name, shows_next, crossing:vararg
    .balign 64, 0x90
\name:
    lea .Lresume\@(%rip), %r10
.if \shows_next
    mov %r10, %r15
.else
    lea .Lcross\@(%rip), %r15
.endif
    .balign 64, 0x90
.Lagain\@:
    call guest_begin
    START %r8d, %r9d
.Lcross\@:
    \crossing
.Lresume\@:
    STOP
    call guest_finish
    jnz .Lagain\@
    jmp guest_user_done
.endm

    .balign 4096
guest_user:
# An exception of the kind fault shows the instruction itself, a trap the next one.
CROSSING_LOOP guest_loop_page_fault, 0, mov %ebx, (%rdi)
CROSSING_LOOP guest_loop_interrupt, 1, int $INT_VECTOR
CROSSING_LOOP guest_loop_breakpoint, 1, int3
CROSSING_LOOP guest_loop_invalid_opcode, 0, ud2
CROSSING_LOOP guest_loop_syscall, 1, syscall

# The stamps of both ways with nothing between them.
    .balign 64, 0x90
guest_loop_none:
    call guest_begin
    START %r8d, %r9d
    STOP
    JOIN %rax, %rdx, %r14
    mov EXPECTED, %rbx
    START %esi, %ebp
    STOP
    call guest_finish
    jnz guest_loop_none
    jmp guest_user_done

# Where a sample begins: clear the bins, take empty pairs, then the loop.
guest_user_start:
    mov %rdi, %rdx
    xor %eax, %eax
    mov $EMPTY_BINS, %edi
    mov $((BINS_END - EMPTY_BINS) / 8), %ecx
    rep stosq
    mov %rdx, %rdi
    mov $EMPTY_PAIRS, %r10d
.Lpair:
    START %r8d, %r9d
    STOP
    JOIN %rax, %rdx, %rax
    JOIN %r8, %r9, %r8
    sub %r8, %rax
    COUNT_IN %rax, EMPTY_BINS, EMPTY_LAST, EMPTY_LONGEST
    dec %r10d
    jnz .Lpair
    jmp *LOOP

# The sample is done: an exception, since every hypervisor delivers one, that guest_fault knows by its RIP.
guest_user_done:
    ud2

# A sentinel of its own for the crossing that follows; no stamp of the last is left.
guest_begin:
    FLOOR FLOOR_USER
    movabs $0x9e3779b97f4a7c15, %rbx
    add SENTINEL, %rbx
    mov %rbx, SENTINEL
    mov %rbx, %rax
    rol $17, %rax
    movabs $KEY, %rcx
    xor %rcx, %rax
    mov %rax, EXPECTED
    xor %r14d, %r14d
    xor %esi, %esi
    xor %ebp, %ebp
    ret

# Counts the crossing; zero is set when it was the last. In edx:eax the last stamp.
guest_finish:
    JOIN %rax, %rdx, %rax
    JOIN %r8, %r9, %r8
    JOIN %rsi, %rbp, %rsi
    cmpq $0, WARM_LEFT
    jne .Lwarm
    incq MADE
    mov %r14, %rcx
    sub %r8, %rcx
    mov %rsi, %rdx
    sub %r14, %rdx
    sub %rsi, %rax
    # The right sentinel, and four stamps in order: one that is missing is zero.
    cmp EXPECTED, %rbx
    jne .Lnot_stamped
    or %rcx, %rdx
    or %rax, %rdx
    js .Lnot_stamped
    incq STAMPED
    COUNT_IN %rcx, U2K_BINS, BINS_LAST, U2K_LONGEST
    COUNT_IN %rax, K2U_BINS, BINS_LAST, K2U_LONGEST
.Lnot_stamped:
    decq LEFT
    ret
.Lwarm:
    decq WARM_LEFT
    # Not the last, whatever the count of those that warm up.
    or $1, %eax
    ret
guest_user_end:
