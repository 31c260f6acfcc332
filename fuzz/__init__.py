"""Our fuzzer: whatever bytes say, there is sound data or an error of ours, in bounded time and memory.

`seeds` makes sound data, `anatomy` takes it apart into `records` that `mutations` change and puts it together again,
`oracles` say what has to hold of any bytes. A `worker` process tries inputs, guided by coverage; `watching` starts
workers, kills those that hang, and keeps `findings`, which `shrinking` makes small.
"""
