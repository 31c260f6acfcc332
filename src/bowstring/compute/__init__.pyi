# Generated from pyarrow 26.0.1 by `python -m tests.compute.stub`.
# fmt: off

from typing import Any

from pyarrow.compute import ArraySortOptions as ArraySortOptions, AssumeTimezoneOptions as AssumeTimezoneOptions, CastOptions as CastOptions, CountOptions as CountOptions, CumulativeOptions as CumulativeOptions, CumulativeSumOptions as CumulativeSumOptions, DayOfWeekOptions as DayOfWeekOptions, DictionaryEncodeOptions as DictionaryEncodeOptions, ElementWiseAggregateOptions as ElementWiseAggregateOptions, ExtractRegexOptions as ExtractRegexOptions, ExtractRegexSpanOptions as ExtractRegexSpanOptions, FilterOptions as FilterOptions, Function as Function, FunctionOptions as FunctionOptions, FunctionRegistry as FunctionRegistry, HashAggregateFunction as HashAggregateFunction, HashAggregateKernel as HashAggregateKernel, IndexOptions as IndexOptions, InversePermutationOptions as InversePermutationOptions, JoinOptions as JoinOptions, Kernel as Kernel, ListFlattenOptions as ListFlattenOptions, ListSliceOptions as ListSliceOptions, MakeStructOptions as MakeStructOptions, MapLookupOptions as MapLookupOptions, MatchSubstringOptions as MatchSubstringOptions, ModeOptions as ModeOptions, NullOptions as NullOptions, PadOptions as PadOptions, PairwiseOptions as PairwiseOptions, PartitionNthOptions as PartitionNthOptions, PivotWiderOptions as PivotWiderOptions, QuantileOptions as QuantileOptions, RandomOptions as RandomOptions, RankOptions as RankOptions, RankQuantileOptions as RankQuantileOptions, ReplaceSliceOptions as ReplaceSliceOptions, ReplaceSubstringOptions as ReplaceSubstringOptions, RoundBinaryOptions as RoundBinaryOptions, RoundOptions as RoundOptions, RoundTemporalOptions as RoundTemporalOptions, RoundToMultipleOptions as RoundToMultipleOptions, RunEndEncodeOptions as RunEndEncodeOptions, ScalarAggregateFunction as ScalarAggregateFunction, ScalarAggregateKernel as ScalarAggregateKernel, ScalarAggregateOptions as ScalarAggregateOptions, ScalarFunction as ScalarFunction, ScalarKernel as ScalarKernel, ScatterOptions as ScatterOptions, SearchSortedOptions as SearchSortedOptions, SelectKOptions as SelectKOptions, SetLookupOptions as SetLookupOptions, SkewOptions as SkewOptions, SliceOptions as SliceOptions, SortOptions as SortOptions, SplitOptions as SplitOptions, SplitPatternOptions as SplitPatternOptions, StrftimeOptions as StrftimeOptions, StrptimeOptions as StrptimeOptions, StructFieldOptions as StructFieldOptions, TDigestOptions as TDigestOptions, TakeOptions as TakeOptions, TrimOptions as TrimOptions, UdfContext as UdfContext, Utf8NormalizeOptions as Utf8NormalizeOptions, VarianceOptions as VarianceOptions, VectorFunction as VectorFunction, VectorKernel as VectorKernel, WeekOptions as WeekOptions, WinsorizeOptions as WinsorizeOptions, ZeroFillOptions as ZeroFillOptions

from bowstring.arrays.scalar import Scalar
from bowstring.compute.bridge import Expression as Expression

def abs(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Calculate the absolute value of the argument element-wise."""

def abs_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Calculate the absolute value of the argument element-wise."""

def acos(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse cosine."""

def acos_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse cosine."""

def acosh(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse hyperbolic cosine."""

def acosh_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse hyperbolic cosine."""

def add(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Add the arguments element-wise."""

def add_checked(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Add the arguments element-wise."""

def all(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Test whether all elements in a boolean array evaluate to true."""

def and_(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'and' boolean values."""

def and_kleene(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'and' boolean values (Kleene logic)."""

def and_not(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'and not' boolean values."""

def and_not_kleene(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'and not' boolean values (Kleene logic)."""

def any(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Test whether any element in a boolean array evaluates to true."""

def approximate_median(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Approximate median of a numeric array with T-Digest algorithm."""

def array_filter(array: Any, selection_filter: Any, /, null_selection_behavior: Any = 'drop', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Filter with a boolean selection filter."""

def array_sort_indices(array: Any, /, order: Any = 'ascending', *, null_placement: Any = 'at_end', options: Any = None, memory_pool: Any = None) -> Any:
    """Return the indices that would sort an array."""

def array_take(array: Any, indices: Any, /, *, boundscheck: bool = True, options: Any = None, memory_pool: Any = None) -> Any:
    """Select values from an array based on indices from another array."""

def ascii_capitalize(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Capitalize the first character of ASCII input."""

def ascii_center(strings: Any, /, width: Any, padding: Any = ' ', lean_left_on_odd_padding: bool = True, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Center strings by padding with a given character."""

def ascii_is_alnum(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII alphanumeric."""

def ascii_is_alpha(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII alphabetic."""

def ascii_is_decimal(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII decimal."""

def ascii_is_lower(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII lowercase."""

def ascii_is_printable(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII printable."""

def ascii_is_space(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII whitespace."""

def ascii_is_title(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII titlecase."""

def ascii_is_upper(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII uppercase."""

def ascii_lower(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Transform ASCII input to lowercase."""

def ascii_lpad(strings: Any, /, width: Any, padding: Any = ' ', lean_left_on_odd_padding: bool = True, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Right-align strings by padding with a given character."""

def ascii_ltrim(strings: Any, /, characters: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Trim leading characters."""

def ascii_ltrim_whitespace(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Trim leading ASCII whitespace characters."""

def ascii_reverse(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Reverse ASCII input."""

def ascii_rpad(strings: Any, /, width: Any, padding: Any = ' ', lean_left_on_odd_padding: bool = True, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Left-align strings by padding with a given character."""

def ascii_rtrim(strings: Any, /, characters: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Trim trailing characters."""

def ascii_rtrim_whitespace(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Trim trailing ASCII whitespace characters."""

def ascii_split_whitespace(strings: Any, /, *, max_splits: Any = None, reverse: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Split string according to any ASCII whitespace."""

def ascii_swapcase(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Transform ASCII input by inverting casing."""

def ascii_title(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Titlecase each word of ASCII input."""

def ascii_trim(strings: Any, /, characters: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Trim leading and trailing characters."""

def ascii_trim_whitespace(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Trim leading and trailing ASCII whitespace characters."""

def ascii_upper(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Transform ASCII input to uppercase."""

def asin(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse sine."""

def asin_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse sine."""

def asinh(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse hyperbolic sine."""

def assume_timezone(timestamps: Any, /, timezone: Any, *, ambiguous: Any = 'raise', nonexistent: Any = 'raise', options: Any = None, memory_pool: Any = None) -> Any:
    """Convert naive timestamp to timezone-aware timestamp."""

def atan(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse tangent of x."""

def atan2(y: Any, x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse tangent of y/x."""

def atanh(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse hyperbolic tangent."""

def atanh_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the inverse hyperbolic tangent."""

def binary_join(strings: Any, separator: Any, /, *, memory_pool: Any = None) -> Any:
    """Join a list of strings together with a separator."""

def binary_join_element_wise(*strings: Any, null_handling: Any = 'emit_null', null_replacement: Any = '', options: Any = None, memory_pool: Any = None) -> Any:
    """Join string arguments together, with the last argument as separator."""

def binary_length(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute string lengths."""

def binary_repeat(strings: Any, num_repeats: Any, /, *, memory_pool: Any = None) -> Any:
    """Repeat a binary string."""

def binary_replace_slice(strings: Any, /, start: Any, stop: Any, replacement: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Replace a slice of a binary string."""

def binary_reverse(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Reverse binary input."""

def binary_slice(strings: Any, /, start: Any, stop: Any = None, step: Any = 1, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Slice binary string."""

def bit_wise_and(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Bit-wise AND the arguments element-wise."""

def bit_wise_not(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Bit-wise negate the arguments element-wise."""

def bit_wise_or(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Bit-wise OR the arguments element-wise."""

def bit_wise_xor(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Bit-wise XOR the arguments element-wise."""

def bottom_k_unstable(values: Any, k: Any, sort_keys: Any = None, null_placements: Any = None, *, memory_pool: Any = None) -> Any:
    """Select the indices of the bottom-k ordered elements from array- or table-like data."""

def call_function(name: Any, args: Any, options: Any = None, memory_pool: Any = None, length: Any = None) -> Any:
    """Call a named function."""

def call_tabular_function(function_name: Any, args: Any = None, func_registry: Any = None) -> Any:
    """Get a record batch iterator from a tabular function."""

def case_when(cond: Any, /, *cases: Any, memory_pool: Any = None) -> Any:
    """Choose values based on multiple conditions."""

def cast(arr: Any, target_type: Any = None, safe: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Cast array values to another data type. Can also be invoked as an array instance method."""

def ceil(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Round up to the nearest integer."""

def ceil_temporal(timestamps: Any, /, multiple: Any = 1, unit: Any = 'day', *, week_starts_monday: bool = True, ceil_is_strictly_greater: bool = False, calendar_based_origin: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Round temporal values up to nearest multiple of specified time unit."""

def choose(indices: Any, /, *values: Any, memory_pool: Any = None) -> Any:
    """Choose values from several arrays."""

def coalesce(*values: Any, memory_pool: Any = None) -> Any:
    """Select the first non-null value."""

def cos(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the cosine."""

def cos_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the cosine."""

def cosh(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the hyperbolic cosine."""

def count(array: Any, /, mode: Any = 'only_valid', *, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Count the number of null / non-null values."""

def count_distinct(array: Any, /, mode: Any = 'only_valid', *, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Count the number of unique values."""

def count_substring(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Count occurrences of substring."""

def count_substring_regex(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Count occurrences of substring."""

def cumulative_max(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative max over a numeric input."""

def cumulative_mean(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative max over a numeric input."""

def cumulative_min(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative min over a numeric input."""

def cumulative_prod(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative product over a numeric input."""

def cumulative_prod_checked(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative product over a numeric input."""

def cumulative_sum(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative sum over a numeric input."""

def cumulative_sum_checked(values: Any, /, start: Any = None, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the cumulative sum over a numeric input."""

def day(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract day number."""

def day_of_week(values: Any, /, *, count_from_zero: bool = True, week_start: Any = 1, options: Any = None, memory_pool: Any = None) -> Any:
    """Extract day of the week number."""

def day_of_year(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract day of year number."""

def day_time_interval_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of days and milliseconds between two timestamps."""

def days_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of days between two timestamps."""

def dictionary_decode(dictionary_array: Any, /, *, memory_pool: Any = None) -> Any:
    """Decodes a DictionaryArray to an Array."""

def dictionary_encode(array: Any, /, null_encoding: Any = 'mask', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Dictionary-encode array."""

def divide(dividend: Any, divisor: Any, /, *, memory_pool: Any = None) -> Any:
    """Divide the arguments element-wise."""

def divide_checked(dividend: Any, divisor: Any, /, *, memory_pool: Any = None) -> Any:
    """Divide the arguments element-wise."""

def drop_null(input: Any, /, *, memory_pool: Any = None) -> Any:
    """Drop nulls from the input."""

def ends_with(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Check if strings end with a literal pattern."""

def equal(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compare values for equality (x == y)."""

def exp(exponent: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute Euler's number raised to the power of specified exponent, element-wise."""

def expm1(exponent: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute Euler's number raised to the power of specified exponent, then decrement 1, element-wise."""

def extract_regex(strings: Any, /, pattern: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Extract substrings captured by a regex pattern."""

def extract_regex_span(strings: Any, /, pattern: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Extract string spans captured by a regex pattern."""

def field(*name_or_index: Any) -> Any:
    """Reference a column of the dataset."""

def fill_null(values: Any, fill_value: Any) -> Any:
    """Replace each null element in values with a corresponding element from fill_value."""

def fill_null_backward(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Carry non-null values backward to fill null slots."""

def fill_null_forward(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Carry non-null values forward to fill null slots."""

def filter(input: Any, selection_filter: Any, /, null_selection_behavior: Any = 'drop', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Filter with a boolean selection filter."""

def find_substring(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Find first occurrence of substring."""

def find_substring_regex(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Find location of first match of regex pattern."""

def first(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the first value in each group."""

def first_last(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the first and last values of an array."""

def floor(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Round down to the nearest integer."""

def floor_temporal(timestamps: Any, /, multiple: Any = 1, unit: Any = 'day', *, week_starts_monday: bool = True, ceil_is_strictly_greater: bool = False, calendar_based_origin: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Round temporal values down to nearest multiple of specified time unit."""

def function_registry() -> Any:
    """Of pyarrow."""

def get_function(name: Any) -> Any:
    """Get a function by name."""

def greater(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compare values for ordered inequality (x > y)."""

def greater_equal(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compare values for ordered inequality (x >= y)."""

def hour(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract hour value."""

def hours_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of hours between two timestamps."""

def hypot(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the hypotenuse (Euclidean norm) of x and y."""

def if_else(cond: Any, left: Any, right: Any, /, *, memory_pool: Any = None) -> Any:
    """Choose values based on a condition."""

def index(data: Any, value: Any, start: Any = None, end: Any = None, *, memory_pool: Any = None) -> Any:
    """Find the index of the first occurrence of a given value."""

def index_in(values: Any, /, value_set: Any, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Return index of each element in a set of values."""

def index_in_meta_binary(values: Any, value_set: Any, /, *, memory_pool: Any = None) -> Any:
    """Return index of each element in a set of values."""

def indices_nonzero(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Return the indices of the values in the array that are non-zero."""

def inverse_permutation(indices: Any, /, max_index: Any = -1, output_type: Any = None, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Return the inverse permutation of the given indices."""

def invert(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Invert boolean values."""

def is_dst(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extracts if currently observing daylight savings."""

def is_finite(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Return true if value is finite."""

def is_in(values: Any, /, value_set: Any, *, skip_nulls: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Find each element in a set of values."""

def is_in_meta_binary(values: Any, value_set: Any, /, *, memory_pool: Any = None) -> Any:
    """Find each element in a set of values."""

def is_inf(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Return true if infinity."""

def is_leap_year(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract if year is a leap year."""

def is_nan(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Return true if NaN."""

def is_null(values: Any, /, *, nan_is_null: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Return true if null (and optionally NaN)."""

def is_valid(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Return true if non-null."""

def iso_calendar(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract (ISO year, ISO week, ISO day of week) struct."""

def iso_week(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract ISO week of year number."""

def iso_year(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract ISO year number."""

def kurtosis(array: Any, /, *, skip_nulls: bool = True, biased: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Calculate the kurtosis of a numeric array."""

def last(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the first value in each group."""

def less(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compare values for ordered inequality (x < y)."""

def less_equal(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compare values for ordered inequality (x <= y)."""

def list_element(lists: Any, index: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute elements using of nested list values using an index."""

def list_flatten(lists: Any, /, recursive: bool = False, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Flatten list values."""

def list_functions() -> Any:
    """Return all function names in the global registry."""

def list_parent_indices(lists: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute parent indices of nested list values."""

def list_slice(lists: Any, /, start: Any, stop: Any = None, step: Any = 1, return_fixed_size_list: Any = None, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute slice of list-like array."""

def list_value_length(lists: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute list lengths."""

def ln(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute natural logarithm."""

def ln_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute natural logarithm."""

def local_timestamp(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Convert timestamp to a timezone-naive local time timestamp."""

def log10(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute base 10 logarithm."""

def log10_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute base 10 logarithm."""

def log1p(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute natural log of (1+x)."""

def log1p_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute natural log of (1+x)."""

def log2(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute base 2 logarithm."""

def log2_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute base 2 logarithm."""

def logb(x: Any, b: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute base `b` logarithm."""

def logb_checked(x: Any, b: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute base `b` logarithm."""

def make_struct(*args: Any, field_names: Any = ..., field_nullability: Any = None, field_metadata: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Wrap Arrays into a StructArray."""

def map_lookup(container: Any, /, query_key: Any, occurrence: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Find the items corresponding to a given key in a Map."""

def match_like(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Match strings against SQL-style LIKE pattern."""

def match_substring(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Match strings against literal pattern."""

def match_substring_regex(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Match strings against regex pattern."""

def max(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the minimum or maximum values of a numeric array."""

def max_element_wise(*args: Any, skip_nulls: bool = True, options: Any = None, memory_pool: Any = None) -> Any:
    """Find the element-wise maximum value."""

def mean(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the mean of a numeric array."""

def microsecond(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract microsecond values."""

def microseconds_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of microseconds between two timestamps."""

def millisecond(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract millisecond values."""

def milliseconds_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of millisecond boundaries between two timestamps."""

def min(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the minimum or maximum values of a numeric array."""

def min_element_wise(*args: Any, skip_nulls: bool = True, options: Any = None, memory_pool: Any = None) -> Any:
    """Find the element-wise minimum value."""

def min_max(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the minimum and maximum values of a numeric array."""

def minute(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract minute values."""

def minutes_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of minute boundaries between two timestamps."""

def mode(array: Any, /, n: Any = 1, *, skip_nulls: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the modal (most common) values of a numeric array."""

def modulo(dividend: Any, divisor: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the modulo of the arguments element-wise."""

def modulo_checked(dividend: Any, divisor: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the modulo of the arguments element-wise."""

def month(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract month number."""

def month_day_nano_interval_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of months, days and nanoseconds between two timestamps."""

def month_interval_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of months between two timestamps."""

def multiply(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Multiply the arguments element-wise."""

def multiply_checked(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Multiply the arguments element-wise."""

def nanosecond(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract nanosecond values."""

def nanoseconds_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of nanoseconds between two timestamps."""

def negate(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Negate the argument element-wise."""

def negate_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Negate the arguments element-wise."""

def not_equal(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Compare values for inequality (x != y)."""

def or_(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'or' boolean values."""

def or_kleene(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'or' boolean values (Kleene logic)."""

def pairwise_diff(input: Any, /, period: Any = 1, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute first order difference of an array."""

def pairwise_diff_checked(input: Any, /, period: Any = 1, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute first order difference of an array."""

def partition_nth_indices(array: Any, /, pivot: Any, *, null_placement: Any = 'at_end', options: Any = None, memory_pool: Any = None) -> Any:
    """Return the indices that would partition an array around a pivot."""

def pivot_wider(pivot_keys: Any, pivot_values: Any, /, key_names: Any, *, unexpected_key_behavior: Any = 'ignore', options: Any = None, memory_pool: Any = None) -> Scalar:
    """Pivot values according to a pivot key column."""

def power(base: Any, exponent: Any, /, *, memory_pool: Any = None) -> Any:
    """Raise arguments to power element-wise."""

def power_checked(base: Any, exponent: Any, /, *, memory_pool: Any = None) -> Any:
    """Raise arguments to power element-wise."""

def product(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the product of values in a numeric array."""

def quantile(array: Any, /, q: Any = 0.5, *, interpolation: Any = 'linear', skip_nulls: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute an array of quantiles of a numeric array or chunked array."""

def quarter(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract quarter of year number."""

def quarters_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of quarters between two timestamps."""

def random(n: Any, *, initializer: Any = 'system', options: Any = None, memory_pool: Any = None) -> Any:
    """Generate numbers in the range [0, 1)."""

def rank(input: Any, /, sort_keys: Any = 'ascending', *, null_placement: Any = None, tiebreaker: Any = 'first', options: Any = None, memory_pool: Any = None) -> Any:
    """Compute ordinal ranks of an array (1-based)."""

def rank_normal(input: Any, /, sort_keys: Any = 'ascending', *, null_placement: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute normal (gaussian) ranks of an array."""

def rank_quantile(input: Any, /, sort_keys: Any = 'ascending', *, null_placement: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute quantile ranks of an array."""

def register_aggregate_function(func: Any, function_name: Any, function_doc: Any, in_types: Any, out_type: Any, func_registry: Any = None) -> Any:
    """Register a user-defined non-decomposable aggregate function."""

def register_scalar_function(func: Any, function_name: Any, function_doc: Any, in_types: Any, out_type: Any, func_registry: Any = None) -> Any:
    """Register a user-defined scalar function."""

def register_tabular_function(func: Any, function_name: Any, function_doc: Any, in_types: Any, out_type: Any, func_registry: Any = None) -> Any:
    """Register a user-defined tabular function."""

def register_vector_function(func: Any, function_name: Any, function_doc: Any, in_types: Any, out_type: Any, func_registry: Any = None) -> Any:
    """Register a user-defined vector function."""

def remainder(dividend: Any, divisor: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the remainder of the arguments element-wise."""

def remainder_checked(dividend: Any, divisor: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the remainder of the arguments element-wise."""

def replace_substring(strings: Any, /, pattern: Any, replacement: Any, *, max_replacements: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Replace matching non-overlapping substrings with replacement."""

def replace_substring_regex(strings: Any, /, pattern: Any, replacement: Any, *, max_replacements: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Replace matching non-overlapping substrings with replacement."""

def replace_with_mask(values: Any, mask: Any, replacements: Any, /, *, memory_pool: Any = None) -> Any:
    """Replace items selected with a mask."""

def round(x: Any, /, ndigits: Any = 0, round_mode: Any = 'half_to_even', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Round to a given precision."""

def round_binary(x: Any, s: Any, /, round_mode: Any = 'half_to_even', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Round to the given precision."""

def round_temporal(timestamps: Any, /, multiple: Any = 1, unit: Any = 'day', *, week_starts_monday: bool = True, ceil_is_strictly_greater: bool = False, calendar_based_origin: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Round temporal values to the nearest multiple of specified time unit."""

def round_to_multiple(x: Any, /, multiple: Any = 1.0, round_mode: Any = 'half_to_even', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Round to a given multiple."""

def run_end_decode(array: Any, /, *, memory_pool: Any = None) -> Any:
    """Decode run-end encoded array."""

def run_end_encode(array: Any, /, run_end_type: Any = ..., *, options: Any = None, memory_pool: Any = None) -> Any:
    """Run-end encode array."""

def scalar(value: Any) -> Any:
    """Expression representing a scalar value."""

def scatter(values: Any, indices: Any, /, max_index: Any = -1, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Scatter the values into specified positions according to the indices."""

def search_sorted(values: Any, needles: Any, /, side: Any = 'left', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Find insertion indices for sorted input."""

def second(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract second values."""

def seconds_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of seconds between two timestamps."""

def select_k_unstable(input: Any, /, k: Any, sort_keys: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Select the indices of the first `k` ordered elements from the input."""

def shift_left(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Left shift `x` by `y`."""

def shift_left_checked(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Left shift `x` by `y`."""

def shift_right(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Right shift `x` by `y`."""

def shift_right_checked(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Right shift `x` by `y`."""

def sign(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Get the signedness of the arguments element-wise."""

def sin(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the sine."""

def sin_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the sine."""

def sinh(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the hyperbolic sine."""

def skew(array: Any, /, *, skip_nulls: bool = True, biased: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Calculate the skewness of a numeric array."""

def sort_indices(input: Any, /, sort_keys: Any = ..., *, null_placement: Any = None, options: Any = None, memory_pool: Any = None) -> Any:
    """Return the indices that would sort an array, record batch or table."""

def split_pattern(strings: Any, /, pattern: Any, *, max_splits: Any = None, reverse: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Split string according to separator."""

def split_pattern_regex(strings: Any, /, pattern: Any, *, max_splits: Any = None, reverse: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Split string according to regex pattern."""

def sqrt(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Takes the square root of arguments element-wise."""

def sqrt_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Takes the square root of arguments element-wise."""

def starts_with(strings: Any, /, pattern: Any, *, ignore_case: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Check if strings start with a literal pattern."""

def stddev(array: Any, /, *, ddof: Any = 0, skip_nulls: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Calculate the standard deviation of a numeric array."""

def strftime(timestamps: Any, /, format: Any = '%Y-%m-%dT%H:%M:%S', locale: Any = 'C', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Format temporal values according to a format string."""

def string_is_ascii(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as ASCII."""

def strptime(strings: Any, /, format: Any, unit: Any, error_is_null: bool = False, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Parse timestamps."""

def struct_field(values: Any, /, indices: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Extract children of a struct or union by index."""

def subsecond(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract subsecond values."""

def subtract(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Subtract the arguments element-wise."""

def subtract_checked(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Subtract the arguments element-wise."""

def sum(array: Any, /, *, skip_nulls: bool = True, min_count: Any = 1, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Compute the sum of a numeric array."""

def take(data: Any, indices: Any, *, boundscheck: bool = True, memory_pool: Any = None) -> Any:
    """Select values (or records) from array- or table-like data given integer selection indices."""

def tan(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the tangent."""

def tan_checked(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the tangent."""

def tanh(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the hyperbolic tangent."""

def tdigest(array: Any, /, q: Any = 0.5, *, delta: Any = 100, buffer_size: Any = 500, skip_nulls: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Any:
    """Approximate quantiles of a numeric array with T-Digest algorithm."""

def top_k_unstable(values: Any, k: Any, sort_keys: Any = None, null_placements: Any = None, *, memory_pool: Any = None) -> Any:
    """Select the indices of the top-k ordered elements from array- or table-like data."""

def true_unless_null(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Return true if non-null, else return null."""

def trunc(x: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the integral part."""

def unique(array: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute unique elements."""

def us_week(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract US week of year number."""

def us_year(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract US epidemiological year number."""

def utf8_capitalize(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Capitalize the first character of input."""

def utf8_center(strings: Any, /, width: Any, padding: Any = ' ', lean_left_on_odd_padding: bool = True, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Center strings by padding with a given character."""

def utf8_is_alnum(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as alphanumeric."""

def utf8_is_alpha(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as alphabetic."""

def utf8_is_decimal(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as decimal."""

def utf8_is_digit(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as digits."""

def utf8_is_lower(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as lowercase."""

def utf8_is_numeric(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as numeric."""

def utf8_is_printable(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as printable."""

def utf8_is_space(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as whitespace."""

def utf8_is_title(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as titlecase."""

def utf8_is_upper(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Classify strings as uppercase."""

def utf8_length(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute UTF8 string lengths."""

def utf8_lower(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Transform input to lowercase."""

def utf8_lpad(strings: Any, /, width: Any, padding: Any = ' ', lean_left_on_odd_padding: bool = True, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Right-align strings by padding with a given character."""

def utf8_ltrim(strings: Any, /, characters: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Trim leading characters."""

def utf8_ltrim_whitespace(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Trim leading whitespace characters."""

def utf8_normalize(strings: Any, /, form: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Utf8-normalize input."""

def utf8_replace_slice(strings: Any, /, start: Any, stop: Any, replacement: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Replace a slice of a string."""

def utf8_reverse(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Reverse input."""

def utf8_rpad(strings: Any, /, width: Any, padding: Any = ' ', lean_left_on_odd_padding: bool = True, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Left-align strings by padding with a given character."""

def utf8_rtrim(strings: Any, /, characters: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Trim trailing characters."""

def utf8_rtrim_whitespace(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Trim trailing whitespace characters."""

def utf8_slice_codeunits(strings: Any, /, start: Any, stop: Any = None, step: Any = 1, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Slice string."""

def utf8_split_whitespace(strings: Any, /, *, max_splits: Any = None, reverse: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Split string according to any Unicode whitespace."""

def utf8_swapcase(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Transform input lowercase characters to uppercase and uppercase characters to lowercase."""

def utf8_title(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Titlecase each word of input."""

def utf8_trim(strings: Any, /, characters: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Trim leading and trailing characters."""

def utf8_trim_whitespace(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Trim leading and trailing whitespace characters."""

def utf8_upper(strings: Any, /, *, memory_pool: Any = None) -> Any:
    """Transform input to uppercase."""

def utf8_zero_fill(strings: Any, /, width: Any, padding: Any = '0', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Left-pad strings to a given width, preserving leading sign characters."""

def utf8_zfill(strings: Any, /, width: Any, padding: Any = '0', *, options: Any = None, memory_pool: Any = None) -> Any:
    """Left-pad strings to a given width, preserving leading sign characters."""

def value_counts(array: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute counts of unique elements."""

def variance(array: Any, /, *, ddof: Any = 0, skip_nulls: bool = True, min_count: Any = 0, options: Any = None, memory_pool: Any = None) -> Scalar:
    """Calculate the variance of a numeric array."""

def week(values: Any, /, *, week_starts_monday: bool = True, count_from_zero: bool = False, first_week_is_fully_in_year: bool = False, options: Any = None, memory_pool: Any = None) -> Any:
    """Extract week of year number."""

def weeks_between(start: Any, end: Any, /, *, count_from_zero: bool = True, week_start: Any = 1, options: Any = None, memory_pool: Any = None) -> Any:
    """Compute the number of weeks between two timestamps."""

def winsorize(array: Any, /, lower_limit: Any, upper_limit: Any, *, options: Any = None, memory_pool: Any = None) -> Any:
    """Winsorize an array."""

def xor(x: Any, y: Any, /, *, memory_pool: Any = None) -> Any:
    """Logical 'xor' boolean values."""

def year(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract year number."""

def year_month_day(values: Any, /, *, memory_pool: Any = None) -> Any:
    """Extract (year, month, day) struct."""

def years_between(start: Any, end: Any, /, *, memory_pool: Any = None) -> Any:
    """Compute the number of years between two timestamps."""
