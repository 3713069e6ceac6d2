//! From the loader (32-bit protected mode, by the PVH note) to Rust in long mode: the first 4 GiB mapped as they are.
//!
//! And the five functions that compiled code calls by name, which on this target a C library would have.

core::arch::global_asm!(
    r#"
.section .note.pvh,"a",@note
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start
.section .boot,"ax",@progbits
.code32
.globl pvh_start
pvh_start:
    cli
    cld
    mov esp, offset stack_top
    // Four directories of 512 pages of 2 MiB: physical address = virtual address.
    mov edi, offset directories
    mov eax, 0x83
    mov ecx, 2048
1:  mov [edi], eax
    mov dword ptr [edi + 4], 0
    add eax, 0x200000
    add edi, 8
    loop 1b
    mov edi, offset pointers
    mov eax, offset directories
    or eax, 3
    mov ecx, 4
1:  mov [edi], eax
    add eax, 0x1000
    add edi, 8
    loop 1b
    mov eax, offset pointers
    or eax, 3
    mov [level4], eax
    mov eax, offset level4
    mov cr3, eax
    mov eax, cr4
    or eax, 0x620           // PAE; SSE, which this target's code uses
    mov cr4, eax
    mov ecx, 0xc0000080     // EFER: long mode
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    and eax, 0xfffffffb
    or eax, 0x80000003
    mov cr0, eax
    lgdt [gdtr]
    push 8
    mov eax, offset long_start
    push eax
    retf
.code64
long_start:
    xor eax, eax
    mov ds, ax
    mov es, ax
    mov ss, ax
    lea rsp, [rip + stack_top]
    call main
    ud2
.section .data.gdt,"aw",@progbits
.balign 8
gdt:  .quad 0, 0x00af9b000000ffff
gdtr: .word 15
      .quad gdt
.section .bss.boot,"aw",@nobits
.balign 4096
level4:      .skip 4096
pointers:    .skip 4096
directories: .skip 16384
             .skip 131072
stack_top:
"#
);

/// C's `memcpy`.
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _)
    }
    to
}

/// C's `memmove`.
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= n {
        // SAFETY: the caller's promise; upwards nothing is overwritten before it is read.
        return unsafe { memcpy(to, from, n) };
    }
    let (last_to, last_from) = (to.wrapping_add(n).wrapping_sub(1), from.wrapping_add(n).wrapping_sub(1));
    // SAFETY: the same, downwards.
    unsafe {
        core::arch::asm!("std", "rep movsb", "cld", inout("rcx") n => _, inout("rdi") last_to => _, inout("rsi") last_from => _)
    }
    to
}

/// C's `memset`.
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { core::arch::asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") byte as u8) }
    to
}

/// C's `memcmp`.
/// # Safety
/// As C's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: the caller's promise; volatile, so that this loop is not made a call of itself.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// BSD's `bcmp`.
/// # Safety
/// As `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, n) }
}
