from bowstring.spark.folder_vacuum import vacuum as vacuum
from bowstring.spark.folder_writer import write as write
from bowstring.spark.java_runtime import (
    JavaRuntime as JavaRuntime,
    find_java as find_java,
    set_java_home as set_java_home,
)
from bowstring.spark.publication import (
    PublishedFrame as PublishedFrame,
    publish as publish,
)
from bowstring.spark.publish_options import RemoteOptions as RemoteOptions
from bowstring.spark.source import count_rows as count_rows
from bowstring.spark.spark_session import register as register, session as session
from bowstring.spark.stream_publication import publish_stream as publish_stream
