from bowstring.spark.folder.vacuum import vacuum as vacuum
from bowstring.spark.folder.writer import write as write
from bowstring.spark.publication.frame import (
    PublishedFrame as PublishedFrame,
    publish as publish,
)
from bowstring.spark.publication.options import RemoteOptions as RemoteOptions
from bowstring.spark.publication.stream import publish_stream as publish_stream
from bowstring.spark.runtime.java_runtime import (
    JavaRuntime as JavaRuntime,
    find_java as find_java,
    set_java_home as set_java_home,
)
from bowstring.spark.source.frame import count_rows as count_rows, read as read
from bowstring.spark.spark_session import register as register, session as session
