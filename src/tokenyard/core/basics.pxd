# The numbers of basics.py, for Cython; what is not declared is any object.

import cython


@cython.locals(numbers=int[::1], i=Py_ssize_t, count=Py_ssize_t)
cpdef int32s(list values)


@cython.locals(numbers=int[::1], i=Py_ssize_t, number=int)
cpdef token_column(list ids)


@cython.locals(numbers='long long[::1]', i=Py_ssize_t)
cpdef int64s(list values)
