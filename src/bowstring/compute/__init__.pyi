from bowstring.compute.aggregations import (
    all as all,
    any as any,
    count as count,
    count_distinct as count_distinct,
    max as max,
    mean as mean,
    min as min,
    min_max as min_max,
    product as product,
    stddev as stddev,
    sum as sum,
    value_counts as value_counts,
    variance as variance,
)
from bowstring.compute.arithmetic import (
    abs as abs,
    abs_checked as abs_checked,
    add as add,
    add_checked as add_checked,
    cumulative_sum as cumulative_sum,
    divide as divide,
    divide_checked as divide_checked,
    multiply as multiply,
    multiply_checked as multiply_checked,
    negate as negate,
    negate_checked as negate_checked,
    power as power,
    sign as sign,
    sqrt as sqrt,
    subtract as subtract,
    subtract_checked as subtract_checked,
)
from bowstring.compute.comparisons import (
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    less as less,
    less_equal as less_equal,
    not_equal as not_equal,
)
from bowstring.compute.logic import (
    and_ as and_,
    and_kleene as and_kleene,
    and_not as and_not,
    and_not_kleene as and_not_kleene,
    invert as invert,
    or_ as or_,
    or_kleene as or_kleene,
    xor as xor,
)
from bowstring.compute.nested import (
    list_flatten as list_flatten,
    list_value_length as list_value_length,
    struct_field as struct_field,
)
from bowstring.compute.rounding import (
    ceil as ceil,
    floor as floor,
    round as round,
    trunc as trunc,
)
from bowstring.compute.selection import (
    cast as cast,
    coalesce as coalesce,
    dictionary_encode as dictionary_encode,
    drop_null as drop_null,
    fill_null as fill_null,
    fill_null_backward as fill_null_backward,
    fill_null_forward as fill_null_forward,
    filter as filter,
    if_else as if_else,
    is_finite as is_finite,
    is_inf as is_inf,
    is_nan as is_nan,
    is_null as is_null,
    is_valid as is_valid,
    sort_indices as sort_indices,
    take as take,
    unique as unique,
)
from bowstring.compute.sets import (
    index_in as index_in,
    is_in as is_in,
)
from bowstring.compute.strings import (
    binary_length as binary_length,
    ends_with as ends_with,
    match_substring as match_substring,
    starts_with as starts_with,
    utf8_length as utf8_length,
    utf8_lower as utf8_lower,
    utf8_upper as utf8_upper,
)
from bowstring.compute.temporal import (
    day as day,
    day_of_week as day_of_week,
    hour as hour,
    minute as minute,
    month as month,
    second as second,
    year as year,
)
