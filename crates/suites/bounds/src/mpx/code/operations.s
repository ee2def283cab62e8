# Executes a list of operations with two operands each. Each returns BNDSTATUS (0 without #BR), the number
# of tables so far, and bnd0.

.equ STUB, 32

operations:
    mov $COMMANDS, %r12
    mov $RESULTS, %r13
    mov COUNT, %rbp
    lea operated(%rip), %r15
1:  movq $0, STATUS
    mov (%r12), %rcx
    mov 8(%r12), %rax
    mov 16(%r12), %rbx
    lea stubs(%rip), %rdx
    imul $STUB, %rcx
    add %rcx, %rdx
    jmp *%rdx
operated:
    mov STATUS, %rax
    mov %rax, (%r13)
    mov TABLES, %rax
    mov %rax, 8(%r13)
    lea 16(%r13), %rax
    BNDMOV_RAX_0
    add $32, %r12
    add $32, %r13
    dec %rbp
    jnz 1b
    mov $RESULTS, %esi
    mov COUNT, %rdx
    shl $5, %rdx
    jmp answer

# Whether the instruction after one with base and index runs: 1 instead of BNDSTATUS if it does.
.macro COUNTS_BYTES
    clc
    BNDCL_0_RAX_RBX_BARE
    stc
    setc STATUS
.endm

.macro OPERATION instruction
    .balign STUB
    \instruction
    jmp operated
.endm

# In the order of `Operation`.
    .balign STUB
stubs:
    OPERATION BNDMK_0_RAX_RBX
    OPERATION BNDCL_0_RAX
    OPERATION BNDCU_0_RAX
    OPERATION BNDCN_0_RAX
    OPERATION BNDCL_0_RAX_RBX
    OPERATION BNDCU_0_RAX_RBX
    OPERATION BNDCN_0_RAX_RBX
    OPERATION BNDMOV_RAX_0
    OPERATION BNDMOV_0_RAX
    OPERATION BNDMOV_1_0
    OPERATION BNDMOV_0_1
    OPERATION BNDSTX_RAX_RBX_0
    OPERATION BNDLDX_0_RAX_RBX
    OPERATION "mov %rbx, (%rax)"
    OPERATION COUNTS_BYTES
