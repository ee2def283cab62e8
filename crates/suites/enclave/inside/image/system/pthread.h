// The part of pthread.h that allocators use: mutexes that spin for a while, then sleep outside by an OCALL. The other
// functions do nothing. The algorithm is that of src/lock.rs.
#pragma once
#include <tollgate_allocator.h>

// The C library's types. Only the first word of a mutex is used.
#include <bits/pthreadtypes.h>

// How often a thread checks a locked mutex before it sleeps outside.
#define MAX_SPINS 100

enum
{
  FREE,
  LOCKED,
  // Locked, and threads may sleep outside.
  CONTENDED
};

#define PTHREAD_MUTEX_INITIALIZER {0}
#define PTHREAD_MUTEX_DEFAULT 0

static inline uint32_t* mutex_word(pthread_mutex_t* mutex)
{
  return (uint32_t*)mutex;
}

// Returns 0 if the mutex was free.
static inline int pthread_mutex_trylock(pthread_mutex_t* mutex)
{
  uint32_t free = FREE;
  return !__atomic_compare_exchange_n(
    mutex_word(mutex), &free, LOCKED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static __attribute__((noinline, unused)) void mutex_wait(uint32_t* word)
{
  for (int spin = 0; spin < MAX_SPINS; ++spin)
  {
    uint32_t free = FREE;
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == FREE &&
        __atomic_compare_exchange_n(word, &free, LOCKED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return;
    __builtin_ia32_pause();
  }
  while (__atomic_exchange_n(word, CONTENDED, __ATOMIC_ACQUIRE) != FREE)
    tollgate_enclave_wait(word, CONTENDED);
}

static inline int pthread_mutex_lock(pthread_mutex_t* mutex)
{
  if (pthread_mutex_trylock(mutex))
    mutex_wait(mutex_word(mutex));
  return 0;
}

static inline int pthread_mutex_unlock(pthread_mutex_t* mutex)
{
  if (__atomic_exchange_n(mutex_word(mutex), FREE, __ATOMIC_RELEASE) == CONTENDED)
    tollgate_enclave_wake(mutex_word(mutex), 1);
  return 0;
}

static inline int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes)
{
  (void)attributes;
  *mutex_word(mutex) = FREE;
  return 0;
}

#define pthread_mutex_destroy(mutex) ((void)(mutex), 0)
#define pthread_mutexattr_init(attributes) ((void)(attributes), 0)
#define pthread_mutexattr_settype(attributes, type) ((void)(attributes), 0)
#define pthread_mutexattr_destroy(attributes) ((void)(attributes), 0)
