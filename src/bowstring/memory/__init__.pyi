from bowstring.memory.arena import Arena as Arena
from bowstring.memory.buffer import Buffer as Buffer
from bowstring.memory.mapping_pool import release_unused_memory as release_unused_memory
from bowstring.memory.region import Region as Region
