# The numbers of prefix_index.py, for Cython: a block's id is an int, a column is a view of ints. A block's hash must stay
# any object, since replays use whole numbers in place of bytes.

import cython


cdef class PrefixIndex:
    cdef readonly Py_ssize_t group_id
    cdef readonly dict first
    cdef dict _more

    @cython.locals(first=dict, found=list)
    cpdef list longest_prefix(self, hashes)

    @cython.locals(oldest=list)
    cpdef add_n(self, list hashes, list blocks)

    cpdef discard_n(self, list hashes, list blocks)


cdef class NumberedIndex(PrefixIndex):
    cdef object _oldest
    cdef Py_ssize_t _count

    @cython.locals(oldest=int[::1], found=list, room=Py_ssize_t, number=Py_ssize_t, block=int)
    cpdef list longest_prefix(self, hashes)

    @cython.locals(oldest=int[::1], room=Py_ssize_t, number=Py_ssize_t, block=int, known=int, i=Py_ssize_t)
    cpdef add_n(self, list hashes, list blocks)

    @cython.locals(oldest=int[::1], more=dict, room=Py_ssize_t, number=Py_ssize_t, block=int, i=Py_ssize_t)
    cpdef discard_n(self, list hashes, list blocks)


cdef int _tag(block_hash) except -1


cdef class FlatIndex(PrefixIndex):
    cdef int[::1] _table, _tags
    cdef list _keys
    cdef Py_ssize_t _count, _mask

    @cython.locals(table=int[::1], mask=Py_ssize_t, at=Py_ssize_t, block=int)
    cdef Py_ssize_t _place(self, int tag, block_hash) except -1

    @cython.locals(table=int[::1], mask=Py_ssize_t, at=Py_ssize_t)
    cdef Py_ssize_t _place_of(self, int block) except -1

    cdef _put(self, Py_ssize_t at, int block, int tag, block_hash)

    @cython.locals(found=list, block=int)
    cpdef list longest_prefix(self, hashes)

    @cython.locals(i=Py_ssize_t, block=int, tag=int, at=Py_ssize_t, known=int)
    cpdef add_n(self, list hashes, list blocks)

    @cython.locals(more=dict, keys=list, i=Py_ssize_t, block=int)
    cpdef discard_n(self, list hashes, list blocks)

    @cython.locals(table=int[::1], mask=Py_ssize_t, at=Py_ssize_t, block=int)
    cdef _empty(self, Py_ssize_t hole)
