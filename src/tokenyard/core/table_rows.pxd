# The numbers of table_rows.py, for Cython; what is not declared is any object.

import cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from tokenyard.core.columns cimport (
    are_alike, are_places, counting, first_entries, have_entries, have_rows, import_c, int64s, is_flags, is_plain,
    is_walked, is_walked32, length_of, like, may_change, ndarray, whole,
)


cdef inline bytes new_int32s(Py_ssize_t count):
    """Bytes of so many, to be written where they are made and nowhere else."""
    return PyBytes_FromStringAndSize(NULL, count * sizeof(int))

cdef inline int* int32s_of(bytes packed) noexcept:
    return <int*>PyBytes_AS_STRING(packed)


@cython.locals(taken=ndarray, i=Py_ssize_t, most=Py_ssize_t, entries='whole*', at='whole*', into='whole*')
cpdef gather(ndarray column, ndarray slots)

@cython.locals(taken=ndarray, i=Py_ssize_t, of='whole*', entries='whole*', at='whole*', into='whole*')
cpdef less(ndarray values, ndarray column, ndarray slots)

@cython.locals(taken=ndarray, i=Py_ssize_t, of='whole*', entries='whole*', at='whole*', into='whole*')
cpdef capped_sum(ndarray values, ndarray column, ndarray slots, whole most)

@cython.locals(i=Py_ssize_t, result=whole, entries='whole*', off='whole*', at='whole*')
cpdef least_difference(ndarray column, ndarray other, ndarray slots)

@cython.locals(i=Py_ssize_t, most=Py_ssize_t, entries='whole*', at='whole*', of='whole*')
cpdef scatter(ndarray column, ndarray slots, ndarray values)

cpdef put(ndarray column, Py_ssize_t slot, whole value)

cpdef whole entry(ndarray column, Py_ssize_t slot) except? -1

@cython.locals(i=Py_ssize_t, entries='whole*', at='whole*')
cpdef put_all(ndarray column, ndarray slots, whole value)

@cython.locals(i=Py_ssize_t, into='unsigned char*', at='whole*', of='unsigned char*')
cpdef mark(ndarray column, ndarray slots, ndarray flags)

@cython.locals(
    sums=ndarray, i=Py_ssize_t, one=bint, entries='whole*', at='whole*', of='whole*', into='whole*'
)
cpdef add_at(ndarray column, ndarray slots, ndarray amounts, whole times=*)

@cython.locals(
    rows=ndarray, found=Py_ssize_t, i=Py_ssize_t, of='whole*', entries='whole*', at='whole*', into='whole*',
)
cpdef rows_from(ndarray values, ndarray column, ndarray slots, whole beyond=*)

@cython.locals(found=list, i=Py_ssize_t, entries='whole*', at='whole*')
cpdef rows_unlike(ndarray column, ndarray slots, whole value)

@cython.locals(count=Py_ssize_t, first=Py_ssize_t, i=Py_ssize_t, of='int*', entries='whole*', entries32='int*')
cpdef put_row(ndarray table, Py_ssize_t slot, ndarray values)

@cython.locals(packed=bytes, first=Py_ssize_t, i=Py_ssize_t, entries='whole*', into='int*')
cpdef bytes row_bytes(ndarray table, Py_ssize_t slot, Py_ssize_t start, Py_ssize_t stop)

@cython.locals(
    found=list, width=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, of='whole*', entries_of='whole*', at='whole*'
)
cpdef rows_among(ndarray values, ndarray table, ndarray slots)

@cython.locals(packed=list, width=Py_ssize_t, i=Py_ssize_t, places='whole*')
cpdef list packed_rows(ndarray table, ndarray slots)

@cython.locals(
    packed=ndarray, steps=Py_ssize_t, width=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, row=Py_ssize_t,
    end=Py_ssize_t, place=Py_ssize_t, entries='whole*', at='whole*', before='whole*', of='whole*', into='int*',
)
cpdef bytes fill_rows(ndarray table, ndarray slots, ndarray filled, ndarray values)

@cython.locals(
    width=Py_ssize_t, row=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, entries='whole*', at='whole*', of='whole*'
)
cpdef put_rows(ndarray table, ndarray slots, ndarray values)

@cython.locals(
    width=Py_ssize_t, place=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, at='whole*', first='whole*', many='whole*',
    of='int*', into='int*',
)
cpdef deal_rows(ndarray table, ndarray slots, ndarray starts, ndarray counts, ndarray values)

@cython.locals(
    now=ndarray, full=ndarray, i=Py_ssize_t, found=Py_ssize_t, place=whole, room=whole, at='whole*', of='whole*',
    entries='whole*', number='whole*', begins='whole*', ends='whole*', into='whole*', filled='whole*',
)
cpdef tuple push(ndarray table, ndarray slots, ndarray values, ndarray counts, ndarray origins, ndarray lasts)
