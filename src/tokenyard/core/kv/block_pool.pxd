# The numbers of block_pool.py, for Cython: a block's id is an int, a column is a view of ints. What is not declared is
# any object; a block's hash must stay one, since replays use whole numbers in place of bytes.

import cython
from tokenyard.core.kv.prefix_index cimport PrefixIndex


cdef class FreeQueue:
    cdef list _front, _back
    cdef int[::1] _place
    cdef Py_ssize_t _base, _head, _most
    cdef readonly Py_ssize_t size

    cpdef list popleft_n(self, Py_ssize_t n)

    cpdef list first_n(self, Py_ssize_t n)

    @cython.locals(
        front=list, back=list, blocks=list, taken=list, rest=Py_ssize_t, head=Py_ssize_t, first=Py_ssize_t,
        end=Py_ssize_t, has_holes=bint,
    )
    cdef tuple _leading(self, Py_ssize_t n)

    @cython.locals(back=list, place=int[::1], put=list, at=Py_ssize_t)
    cpdef append_n(self, blocks)

    @cython.locals(front=list, place=int[::1], start=Py_ssize_t, at=Py_ssize_t)
    cpdef prepend_n(self, blocks)

    @cython.locals(
        front=list, back=list, place=int[::1], base=Py_ssize_t, head=Py_ssize_t, num_front=Py_ssize_t,
        num_back=Py_ssize_t, num_removed=Py_ssize_t, at=Py_ssize_t, is_free=bint,
    )
    cpdef remove_n(self, blocks)


@cython.locals(worthless=list, kept=list, at=Py_ssize_t)
cpdef unhashed_first(FreeQueue queue, freed, list hash_of, dict prompt_tails)


cdef class BlockPool:
    cdef object _put_back
    cdef readonly list hash_of, index_of, indexes
    cdef readonly FreeQueue free_queue
    cdef readonly tuple listeners
    cdef readonly Py_ssize_t num_blocks
    cdef readonly dict prompt_tails
    cdef readonly int[::1] ref

    @cython.locals(ref=int[::1], hash_of=list, blocks=list, cached=list, contents=list, at=Py_ssize_t)
    cpdef list take(self, Py_ssize_t n)

    @cython.locals(first=PrefixIndex)
    cdef _evict(self, list blocks, list hashes)

    @cython.locals(ref=int[::1], evictable=Py_ssize_t, block=Py_ssize_t)
    cpdef Py_ssize_t num_evictable(self, blocks)

    @cython.locals(ref=int[::1], free=list, holders=int, at=Py_ssize_t)
    cpdef touch(self, blocks)

    @cython.locals(ref=int[::1], freed=list, left=int, at=Py_ssize_t)
    cpdef release(self, ordered, put_back=*)

    @cython.locals(hash_of=list, index_of=list, index=PrefixIndex, i=Py_ssize_t, block=Py_ssize_t)
    cpdef publish(self, list blocks, list hashes, Py_ssize_t group_id=*)
