# Standalone mode: runs the schedule and prints the results. Only in the kernel's page table.

guest_standalone:
    call guest_serial
    mov $VGA, %edi
    mov $2000, %ecx
    mov $0x0f20, %eax
    rep stosw
    lea .Lbanner(%rip), %rsi
    mov $1, %edi
    call guest_show
    call guest_new_line
    call guest_header
    xor %ebx, %ebx
.Lsample:
    mov %ebx, POSITION
    mov SCHEDULE(,%rbx,4), %eax
    movzbl %al, %ecx
    mov %ecx, VARIANT
    movzbl %ah, %ecx
    mov %ecx, ISOLATION
    shr $16, %eax
    mov %eax, ROUND
    mov $(VGA + 3 * 160), %edi
    mov %ebx, %eax
    inc %eax
    call guest_show_number
    mov $(VGA + 3 * 160 + 2 * 10), %edi
    mov SAMPLES, %eax
    call guest_show_number
    call guest_adds
    mov %rax, ADDS_BEFORE
    call guest_multiplies
    mov %rax, MULTIPLIES_BEFORE
    call guest_sample
    call guest_adds
    mov %rax, ADDS_AFTER
    call guest_multiplies
    mov %rax, MULTIPLIES_AFTER
    call guest_print_sample
    inc %ebx
    cmp SAMPLES, %ebx
    jb .Lsample
    call guest_line
    NUMBER "end samples=", SAMPLES
    call guest_line_end
    lea .Lfinished(%rip), %rsi
    mov $5, %edi
    call guest_show
    mov $EXIT_DONE, %eax
guest_stop:
    call guest_exit
.Lhalt:
    cli
    hlt
    jmp .Lhalt

guest_print_sample:
    push %rbx
    call guest_line
    SMALL_NUMBER "sample position=", POSITION
    SMALL_NUMBER " round=", ROUND
    PRINT " kind="
    mov VARIANT, %ecx
    lea .Lkinds(%rip), %rsi
    jecxz .Lkind
.Lnext_kind:
    lodsb
    test %al, %al
    jnz .Lnext_kind
    dec %ecx
    jnz .Lnext_kind
.Lkind:
    call guest_put_text
    PRINT " isolation="
    mov ISOLATION, %eax
    test %eax, %eax
    jz .Loff
    PRINT "on"
    jmp .Lisolation
.Loff:
    PRINT "off"
.Lisolation:
    NUMBER " made=", MADE
    NUMBER " stamped=", STAMPED
    SMALL_NUMBER " cs=", SEEN_CS
    SMALL_NUMBER " floor-user=", FLOOR_USER
    SMALL_NUMBER " floor-handler=", FLOOR_HANDLER
    NUMBER " adds-before=", ADDS_BEFORE
    NUMBER " adds-after=", ADDS_AFTER
    NUMBER " multiplies-before=", MULTIPLIES_BEFORE
    NUMBER " multiplies-after=", MULTIPLIES_AFTER
    NUMBER " longest=", EMPTY_LONGEST
    NUMBER ",", U2K_LONGEST
    NUMBER ",", K2U_LONGEST
    PRINT " empty="
    mov $EMPTY_BINS, %edi
    mov $(EMPTY_LAST + 1), %ecx
    call guest_put_bins
    PRINT " u2k="
    mov $U2K_BINS, %edi
    mov $(BINS_LAST + 1), %ecx
    call guest_put_bins
    PRINT " k2u="
    mov $K2U_BINS, %edi
    mov $(BINS_LAST + 1), %ecx
    call guest_put_bins
    call guest_line_end
    pop %rbx
    ret

# Prints the description of the machine.
guest_header:
    push %rbx
    call guest_line
    PRINT "begin version=3"
    NUMBER " samples=", SAMPLES
    NUMBER " rounds=", ROUNDS
    NUMBER " crossings=", CROSSINGS
    NUMBER " warmup=", WARMUP
    NUMBER " seed=", SEED
    call guest_line_end
    xor %eax, %eax
    cpuid
    mov %ebx, TEXT
    mov %edx, TEXT + 4
    mov %ecx, TEXT + 8
    movl $0, TEXT + 12
    call guest_line
    PRINT "vendor "
    call .Lput_text
    mov $0x80000002, %edi
    mov $TEXT, %esi
.Lbrand:
    mov %edi, %eax
    cpuid
    mov %eax, (%rsi)
    mov %ebx, 4(%rsi)
    mov %ecx, 8(%rsi)
    mov %edx, 12(%rsi)
    add $16, %esi
    inc %edi
    cmp $0x80000005, %edi
    jb .Lbrand
    movl $0, (%rsi)
    call guest_line
    PRINT "brand "
    call .Lput_text
    movl $0, TEXT
    movl $0, TEXT + 12
    mov $1, %eax
    cpuid
    bt $31, %ecx
    jnc .Lbare
    mov $0x40000000, %eax
    cpuid
    mov %ebx, TEXT
    mov %ecx, TEXT + 4
    mov %edx, TEXT + 8
.Lbare:
    call guest_line
    PRINT "hypervisor "
    call .Lput_text
    mov $1, %eax
    cpuid
    mov %eax, TEXT
    call guest_line
    SMALL_NUMBER "cpu signature=", TEXT
    mov $1, %eax
    cpuid
    shr $31, %ecx
    mov %ecx, %eax
    PRINT " hypervisor="
    call guest_put_yes
    PRINT " pcid="
    mov PCID, %eax
    call guest_put_yes
    call guest_line_end
    call guest_stated_hertz
    mov %rax, TEXT
    call guest_pit_ticks
    mov %rax, TEXT + 8
    call guest_line
    NUMBER "clock stated-hertz=", TEXT
    NUMBER " pit-ticks=", TEXT + 8
    PRINT " pit-count="
    mov $PIT_COUNT, %eax
    call guest_put_number
    PRINT " adds="
    mov $ADDS, %eax
    call guest_put_number
    PRINT " multiplies="
    mov $MULTIPLIES, %eax
    call guest_put_number
    call guest_line_end
    pop %rbx
    ret
.Lput_text:
    mov $TEXT, %esi
    call guest_put_text
    jmp guest_line_end

# Prints one line about an unexpected exception, and exits.
guest_report_fault:
    cmpl $0, STANDALONE
    je .Lfault_exit
    # Cut off an incomplete line.
    call guest_new_line
    call guest_line
    NUMBER "fault vector=", FAULT_VECTOR
    NUMBER " error=", FAULT_ERROR
    NUMBER " rip=", FAULT_RIP
    NUMBER " cs=", FAULT_CS
    NUMBER " cr2=", FAULT_CR2
    SMALL_NUMBER " variant=", VARIANT
    SMALL_NUMBER " isolation=", ISOLATION
    call guest_line_end
    lea .Lfaulted(%rip), %rsi
    mov $5, %edi
    call guest_show
.Lfault_exit:
    mov $EXIT_FAULT, %eax
    jmp guest_stop

.Lkinds:
.irp kind, page-fault, software-interrupt, breakpoint, invalid-opcode, syscall-sysret, syscall-iretq, same-ring, none
    .asciz "\kind stamp=lfence"
.endr
.irp stamp, unfenced, mfence, xperf
    .asciz "page-fault stamp=\stamp", "none stamp=\stamp"
.endr
.Lbanner:
    .asciz "tollgate crossing guest: sample, total; results on COM1 and port 0xe9"
.Lfinished:
    .asciz "done: import the serial output"
.Lfaulted:
    .asciz "unexpected exception: see the serial output"
