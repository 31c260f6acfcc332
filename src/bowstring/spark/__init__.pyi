from bowstring.spark.java import Java as Java, find_java as find_java, set_java_home as set_java_home
from bowstring.spark.publication import Partition as Partition, PublishedDataset as PublishedDataset, publish as publish
from bowstring.spark.spark_session import register as register, session as session
