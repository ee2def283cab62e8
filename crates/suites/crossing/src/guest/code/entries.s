# Entries into ring 0, mapped in both page tables.
# Registers from ring 3: rbx sentinel, r10 return address, r12 the kernel's CR3, r13 ring 3's CR3,
# r15 expected RIP of the exception. To ring 3: rbx transformed sentinel, r14 second stamp of u2k,
# ebp:esi first stamp of k2u. With STAMP_XPERF, r11 is the address of the first stamps.

.macro TO_KERNEL isolation
.if \isolation
    mov %r12, %cr3
.endif
.endm

.macro TO_USER isolation
.if \isolation
    mov %r13, %cr3
.endif
.endm

# Between the two stamps: transforms the sentinel with a key that only the kernel's page table maps, and
# records the ring.
.macro SHOW_RING
    rol $17, %rbx
    xor KEY_AT, %rbx
    mov %cs, %eax
    or %eax, SEEN_CS
    FLOOR FLOOR_HANDLER
.endm

# Entry by a gate of the IDT: page-fault, software-interrupt, breakpoint, invalid-opcode, same-ring.
.macro GATE_ENTRY name, vector, code, isolation, stamp=STAMP_LFENCE
    .balign 64, 0x90
\name:
    TO_KERNEL \isolation
    SECOND_IN_HANDLER \stamp, 16
    JOIN %rax, %rdx, %r14
.if \code
    add $8, %rsp
.endif
    cmp %r15, (%rsp)
    jne .Lunexpected\@
    mov %r10, (%rsp)
    SHOW_RING
    FIRST_IN_HANDLER \stamp
    TO_USER \isolation
    iretq
.Lunexpected\@:
.if \code
    sub $8, %rsp
.else
    push $0
.endif
    push $\vector
    jmp guest_fault
.endm

.macro SYSRET_ENTRY name, isolation
    .balign 64, 0x90
\name:
    TO_KERNEL \isolation
    STOP
    JOIN %rax, %rdx, %r14
    SHOW_RING
    mov %r10, %rcx
    START %esi, %ebp
    TO_USER \isolation
    sysretq
.endm

.macro IRETQ_ENTRY name, isolation
    .balign 64, 0x90
\name:
    TO_KERNEL \isolation
    STOP
    JOIN %rax, %rdx, %r14
    mov %rsp, %r15
    mov $TRAP_STACK, %esp
    push $USER_SS
    push %r15
    push %r11
    push $USER_CS
    push %r10
    SHOW_RING
    START %esi, %ebp
    TO_USER \isolation
    iretq
.endm

    .balign 4096
guest_entries:
GATE_ENTRY guest_page_fault, 14, 1, 0
GATE_ENTRY guest_page_fault_isolated, 14, 1, 1
GATE_ENTRY guest_interrupt, INT_VECTOR, 0, 0
GATE_ENTRY guest_interrupt_isolated, INT_VECTOR, 0, 1
GATE_ENTRY guest_breakpoint, 3, 0, 0
GATE_ENTRY guest_breakpoint_isolated, 3, 0, 1
GATE_ENTRY guest_invalid_opcode, 6, 0, 0
GATE_ENTRY guest_invalid_opcode_isolated, 6, 0, 1
SYSRET_ENTRY guest_syscall_sysret, 0
SYSRET_ENTRY guest_syscall_sysret_isolated, 1
IRETQ_ENTRY guest_syscall_iretq, 0
IRETQ_ENTRY guest_syscall_iretq_isolated, 1
GATE_ENTRY guest_page_fault_unfenced, 14, 1, 0, STAMP_UNFENCED
GATE_ENTRY guest_page_fault_mfence, 14, 1, 0, STAMP_MFENCE
GATE_ENTRY guest_page_fault_xperf, 14, 1, 0, STAMP_XPERF

# Enters ring 3 for a sample, with its page table. The frame is on the trap stack.
guest_enter_isolated:
    # Bit 63 clear: flushes ring 3's TLB entries.
    mov %r13, %rax
    btr $63, %rax
    mov %rax, %cr3
    iretq

# Stubs of unexpected exceptions, on a separate stack: 16 bytes of code each, by vector.
    .balign 64, 0x90
guest_stubs:
.set .Lvector, 0
.rept 32
    .balign 16
.if (.Lvector == 8) || (.Lvector == 10) || (.Lvector == 11) || (.Lvector == 12) || (.Lvector == 13) || (.Lvector == 14) || (.Lvector == 17) || (.Lvector == 21) || (.Lvector == 29) || (.Lvector == 30)
.else
    push $0
.endif
    push $.Lvector
    jmp guest_fault
.set .Lvector, .Lvector + 1
.endr
    .balign 16

# On the stack: vector, error code, RIP, CS, RFLAGS, RSP, SS. At the address in ring 3 where a sample ends it
# is not a fault.
guest_fault:
    mov KERNEL_CR3, %rax
    mov %rax, %cr3
    lea guest_user_done(%rip), %rax
    cmp %rax, 16(%rsp)
    je guest_sample_done
    pop FAULT_VECTOR
    pop FAULT_ERROR
    pop FAULT_RIP
    pop FAULT_CS
    mov %cr2, %rax
    mov %rax, FAULT_CR2
    mov $KERNEL_STACK, %esp
    jmp guest_report_fault
