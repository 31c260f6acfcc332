"""The fuzzer: any bytes are valid data or raise a Bowstring error, in bounded time and memory.

`seeds` creates valid data. `structure` parses it into messages and `flatbuffers` into tables, which `mutations` change.
`oracles` check what must hold for any bytes. A `worker` process runs inputs, guided by coverage. The `supervisor`
starts workers, kills those that hang, and collects `findings`, which `shrinking` minimizes.
"""
