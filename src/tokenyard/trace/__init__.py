"""The trace: its format, the emitter, the recorder that watches a scheduler, and the reader.

``schema`` is the format; ``writer`` emits it; ``recorder`` turns what a scheduler does into records and numbers;
``reader`` reads traces of this and of other emitters. Nothing is re-exported: reading a trace imports no scheduler.
"""
