# Output of lines with checksums to COM1 and port 0xe9. Only in the kernel's page table.

.set COM1, 0x3f8

# 115200 baud, 8 bits, no parity, one stop bit; no interrupts.
guest_serial:
    mov $(COM1 + 1), %edx
    xor %eax, %eax
    out %al, %dx
    mov $(COM1 + 3), %edx
    mov $0x80, %al
    out %al, %dx
    mov $COM1, %edx
    mov $1, %al
    out %al, %dx
    inc %edx
    xor %eax, %eax
    out %al, %dx
    mov $(COM1 + 3), %edx
    mov $3, %al
    out %al, %dx
    dec %edx
    mov $7, %al
    out %al, %dx
    mov $(COM1 + 4), %edx
    mov $3, %al
    out %al, %dx
    ret

# Writes al, without the checksum. Without COM1 the status reads as all ones; the wait for a dead port is
# bounded.
guest_put_raw:
    push %rax
    push %rcx
    push %rdx
    out %al, $0xe9
    mov %al, %ah
    mov $(COM1 + 5), %edx
    mov $100000, %ecx
.Lserial_full:
    in %dx, %al
    test $0x20, %al
    jnz .Lserial_free
    dec %ecx
    jnz .Lserial_full
.Lserial_free:
    mov %ah, %al
    mov $COM1, %edx
    out %al, %dx
    pop %rdx
    pop %rcx
    pop %rax
    ret

# Writes al and adds it to the line's checksum (FNV-1a, 32 bits).
guest_put:
    push %rax
    movzbl %al, %eax
    xor LINE_SUM, %eax
    imul $0x01000193, %eax, %eax
    mov %eax, LINE_SUM
    pop %rax
    jmp guest_put_raw

# Writes the zero-terminated text at rsi.
guest_put_text:
    lodsb
    test %al, %al
    jz .Ltext_end
    call guest_put
    jmp guest_put_text
.Ltext_end:
    ret

# Writes the zero-terminated text after the call, and returns to the address after it.
guest_print:
    push %rax
    xchg %rsi, 8(%rsp)
    call guest_put_text
    xchg %rsi, 8(%rsp)
    pop %rax
    ret

.macro PRINT text
    call guest_print
    .asciz "\text"
.endm

# Writes rax in decimal.
guest_put_number:
    push %rax
    push %rcx
    push %rdx
    push %rsi
    lea TEXT + 0x60, %rsi
    movb $0, (%rsi)
    mov $10, %ecx
.Ldigit:
    xor %edx, %edx
    div %rcx
    add $'0', %edx
    dec %rsi
    mov %dl, (%rsi)
    test %rax, %rax
    jnz .Ldigit
    call guest_put_text
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rax
    ret

.macro NUMBER text, what
    PRINT "\text"
    mov \what, %rax
    call guest_put_number
.endm

.macro SMALL_NUMBER text, what
    PRINT "\text"
    mov \what, %eax
    call guest_put_number
.endm

# Writes yes if eax is not zero, otherwise no.
guest_put_yes:
    test %eax, %eax
    jz .Lno
    PRINT "yes"
    ret
.Lno:
    PRINT "no"
    ret

# Starts a line.
guest_line:
    movl $0x811c9dc5, LINE_SUM
    PRINT "tollgate-guest "
    ret

# Ends a line with its checksum in 8 digits.
guest_line_end:
    push %rax
    push %rcx
    mov LINE_SUM, %ecx
    mov $' ', %al
    call guest_put_raw
    mov $'#', %al
    call guest_put_raw
    push $8
.Lnibble:
    rol $4, %ecx
    mov %ecx, %eax
    and $0xf, %eax
    cmp $10, %eax
    jb .Lbelow_ten
    add $('a' - '0' - 10), %eax
.Lbelow_ten:
    add $'0', %eax
    call guest_put_raw
    decq (%rsp)
    jnz .Lnibble
    pop %rax
    call guest_new_line
    pop %rcx
    pop %rax
    ret

guest_new_line:
    mov $13, %al
    call guest_put_raw
    mov $10, %al
    jmp guest_put_raw

# Writes the nonzero bins of the rcx bins at rdi.
guest_put_bins:
    push %rbx
    xor %ebx, %ebx
    xor %edx, %edx
.Lbin:
    mov (%rdi,%rbx,4), %eax
    test %eax, %eax
    jz .Lbin_next
    push %rax
    test %edx, %edx
    jz .Lbin_first
    PRINT ","
.Lbin_first:
    mov $1, %edx
    mov %ebx, %eax
    call guest_put_number
    PRINT ":"
    pop %rax
    call guest_put_number
.Lbin_next:
    inc %ebx
    cmp %ecx, %ebx
    jb .Lbin
    test %edx, %edx
    jnz .Lbins_end
    PRINT "-"
.Lbins_end:
    pop %rbx
    ret

# Shows the zero-terminated text at rsi on line edi of the screen, bright on black.
guest_show:
    imul $160, %edi, %edi
    add $VGA, %edi
    mov $0x0f, %ah
.Lshow:
    lodsb
    test %al, %al
    jz .Lshown
    stosw
    jmp .Lshow
.Lshown:
    ret

# Shows eax in 6 digits on the screen at rdi.
guest_show_number:
    add $12, %rdi
    mov $6, %esi
    mov $10, %ecx
.Lshow_digit:
    xor %edx, %edx
    div %ecx
    add $('0' + 0x0f00), %edx
    sub $2, %rdi
    mov %dx, (%rdi)
    dec %esi
    jnz .Lshow_digit
    ret
