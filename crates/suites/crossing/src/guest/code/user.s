# Code of ring 3, and for same-ring of ring 0.

# One loop per kind and stamp. The crossing is between the labels .Lcross and .Lresume.
.macro CROSSING_LOOP name, shows_next, stamp, crossing:vararg
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
    CLEAR_STAMPS \stamp
    call guest_begin
    FIRST_IN_USER \stamp
.Lcross\@:
    \crossing
.Lresume\@:
    SECOND \stamp
    LOAD_STAMPS \stamp
    call guest_finish
    jnz .Lagain\@
    jmp guest_user_done
.endm

    .balign 4096
guest_user:
# The RIP of a fault is that of its instruction, the RIP of a trap that of the next one.
CROSSING_LOOP guest_loop_page_fault, 0, STAMP_LFENCE, mov %ebx, (%rdi)
CROSSING_LOOP guest_loop_interrupt, 1, STAMP_LFENCE, int $INT_VECTOR
CROSSING_LOOP guest_loop_breakpoint, 1, STAMP_LFENCE, int3
CROSSING_LOOP guest_loop_invalid_opcode, 0, STAMP_LFENCE, ud2
CROSSING_LOOP guest_loop_syscall, 1, STAMP_LFENCE, syscall
CROSSING_LOOP guest_loop_page_fault_unfenced, 0, STAMP_UNFENCED, mov %ebx, (%rdi)
CROSSING_LOOP guest_loop_page_fault_mfence, 0, STAMP_MFENCE, mov %ebx, (%rdi)
CROSSING_LOOP guest_loop_page_fault_xperf, 0, STAMP_XPERF, mov %ebx, (%rdi)

# The stamps of both ways with no crossing between them.
.macro NONE_LOOP name, stamp
\name:
.if \stamp == STAMP_XPERF
    # The CS of ring 3 where the handler's stamp tests it.
    push $USER_CS
    push $0
    push $0
.endif
    .balign 64, 0x90
.Lnone\@:
    CLEAR_STAMPS \stamp
    call guest_begin
    FIRST_IN_USER \stamp
    SECOND_IN_HANDLER \stamp, 16
    JOIN %rax, %rdx, %r14
    mov EXPECTED, %rbx
    FIRST_IN_HANDLER \stamp
    SECOND \stamp
    LOAD_STAMPS \stamp
    call guest_finish
    jnz .Lnone\@
    jmp guest_user_done
.endm

NONE_LOOP guest_loop_none, STAMP_LFENCE
NONE_LOOP guest_loop_none_unfenced, STAMP_UNFENCED
NONE_LOOP guest_loop_none_mfence, STAMP_MFENCE
NONE_LOOP guest_loop_none_xperf, STAMP_XPERF

# Empty pairs of one stamp, r10d times, then the loop.
.macro PAIRS_LOOP name, stamp
    .balign 64, 0x90
\name:
    FIRST \stamp, %r8d, %r9d
    SECOND \stamp
    JOIN %rax, %rdx, %rax
    JOIN %r8, %r9, %r8
    sub %r8, %rax
    COUNT_IN %rax, EMPTY_BINS, EMPTY_LAST, EMPTY_LONGEST
    dec %r10d
    jnz \name
    jmp *LOOP
.endm

PAIRS_LOOP guest_pairs, STAMP_LFENCE
PAIRS_LOOP guest_pairs_unfenced, STAMP_UNFENCED
# Also with STAMP_XPERF, from which nothing is subtracted.
PAIRS_LOOP guest_pairs_mfence, STAMP_MFENCE

# Start of a sample: clears the bins, measures empty pairs, enters the loop.
guest_user_start:
    mov %rdi, %rdx
    xor %eax, %eax
    mov $EMPTY_BINS, %edi
    mov $((BINS_END - EMPTY_BINS) / 8), %ecx
    rep stosq
    mov %rdx, %rdi
    mov $EMPTY_PAIRS, %r10d
    jmp *PAIRS

# End of the sample: an exception, because every hypervisor delivers it; guest_fault recognises its RIP.
guest_user_done:
    ud2

# Makes a new sentinel for the next crossing and clears the stamps.
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

# Counts the crossing and sets ZF after the last one. edx:eax is the last stamp.
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
    # Right sentinel, and four stamps in order; a missing stamp is zero.
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
    # A warm-up crossing is never the last.
    or $1, %eax
    ret
guest_user_end:

# Offsets of the parts in the code, read by the program that builds the image.
.globl tollgate_guest_code
.hidden tollgate_guest_code
.set tollgate_guest_code, guest_code
    .balign 4
.globl tollgate_guest_parts
.hidden tollgate_guest_parts
tollgate_guest_parts:
    .long guest_start32 - guest_code
    .long guest_start64 - guest_code
    .long guest_entries - guest_code
    .long guest_stubs - guest_code
    .long guest_user - guest_code
    .long guest_user_end - guest_code
