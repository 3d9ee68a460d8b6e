# What hashing.py keeps, for Cython, and who is asked in its loops; what is not declared is any object.

import cython
from tokenyard.core.request cimport Request


cdef class PrefixHash:
    cdef public dict extra_keys
    cdef public object state

    cpdef PrefixHash fork(self)

    cpdef add_keys(self, block, keys)


cdef class BlockHasher:
    cdef public object _blocks_of, _output_keeps_last, _prompts, _state, _stride, block_size, root

    @cython.locals(hashes=list)
    cpdef extend(self, Request request)

    @cython.locals(hashes=list, prefix=PrefixHash)
    cpdef PrefixHash _hash(self, Request request, stop)

    @cython.locals(hashes=list, marks=list, end=PrefixHash)
    cpdef _hash_prompt(self, Request request, stop)

    @cython.locals(request=Request, hashes=list, prefix=PrefixHash)
    cpdef append_n(self, sealed)

    cpdef PrefixHash _begin(self, Request request)


cdef class LookaheadBlockHasher(BlockHasher):
    pass
